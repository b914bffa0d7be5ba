// Runs the built trainer and datatool as processes, alone or under mpirun, and reads what they leave behind.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace lockstep::e2e {

namespace fs = std::filesystem;

struct Outcome {
  int code = 0;      ///< exit code; 128 + signal when one ended it; 124 when it did not end in time
  std::string text;  ///< standard output and error
};

/// A shell command and the trainers that it starts; all die with the object.
class Process {
 public:
  Process(const fs::path& folder, const std::string& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }  ///< of the command itself: trainer, or mpirun
  void signal(int number) const;
  std::string text() const;  ///< printed so far
  /// Waits until `text` was printed; false when the command ended without, or after a minute.
  bool prints(const std::string& text);
  Outcome wait(double seconds = 60);

 private:
  bool poll();
  fs::path folder_, output_;
  pid_t pid_;
  bool ended_ = false;
  int code_ = 0;
};

/// "trainer", or "mpirun -np RANKS trainer" for more ranks than one.
std::string trainer(int ranks);
/// The same for a trainer with faults: trainer_failing.cpp, in whose words `faults` are environment
/// variables.
std::string failing_trainer(int ranks, const std::string& faults);

/// A folder of its own, which is the working directory of what it runs.
class TrainerTest : public testing::Test {
 protected:
  TrainerTest();
  ~TrainerTest() override;

  Outcome run(const std::string& command) const { return Process(folder_, command).wait(); }
  Outcome train(int ranks, const std::string& arguments) const {
    return run(trainer(ranks) + " " + arguments);
  }
  /// As train(), and expects exit code 0.
  Outcome trained(int ranks, const std::string& arguments) const;
  /// A generated set of small images; returns its path relative to the folder. `more` as to `datatool
  /// generate`.
  std::string data(const std::string& name, int samples, const std::string& more = "") const;
  /// The files and folders below the folder.
  std::set<std::string> listing() const;

  fs::path folder_;
};

std::string bytes_of(const fs::path& file);
/// The value at a JSON pointer of a JSON file, as JSON text: numbers with all their digits.
std::string json_at(const fs::path& file, const std::string& pointer);
double number_at(const fs::path& file, const std::string& pointer);
/// The steps of the records of one type in a run's metrics.jsonl, in order.
std::vector<int64_t> logged_steps(const fs::path& run, const std::string& type);
/// The path of checkpoint `step` of a run; of its newest whole one without `step`.
fs::path checkpoint_of(const fs::path& run, int64_t step);
int64_t newest_step(const fs::path& run);

struct Rank {
  pid_t pid;
  int rank;
};
/// The trainers that run in a working directory, by rank.
std::vector<Rank> ranks_in(const fs::path& folder);

int count(const std::string& text, const std::string& what);

}  // namespace lockstep::e2e
