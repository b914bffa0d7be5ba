#include "trainer_driver.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace lockstep::e2e {

using Clock = std::chrono::steady_clock;

static void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

Process::Process(const fs::path& folder, const std::string& command) : folder_(folder) {
  static std::atomic<int> started = 0;
  output_ = fs::temp_directory_path() /
            ("lockstep_output_" + std::to_string(getpid()) + "_" + std::to_string(started++));
  pid_ = fork();
  if (pid_ != 0) return;
  setpgid(0, 0);
  const int out = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, 0);
  dup2(out, 1);
  dup2(out, 2);
  close(in);
  close(out);
  const std::string line = "exec " + command;
  if (chdir(folder.c_str()) == 0) execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  _exit(127);
}

Process::~Process() {
  for (const Rank& rank : ranks_in(folder_)) kill(rank.pid, SIGKILL);
  if (!poll()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  fs::remove(output_);
}

void Process::signal(int number) const { kill(pid_, number); }

std::string Process::text() const { return bytes_of(output_); }

bool Process::poll() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = true;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return ended_;
}

bool Process::prints(const std::string& what) {
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  while (Clock::now() < deadline) {
    const bool last = poll();
    if (text().find(what) != std::string::npos) return true;
    if (last) return false;
    nap();
  }
  return false;
}

Outcome Process::wait(double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (!poll() && Clock::now() < deadline) nap();
  return {ended_ ? code_ : 124, text()};
}

static std::string launched(int ranks, const std::string& program) {
  return ranks == 1 ? program : MPIEXEC " -np " + std::to_string(ranks) + " " + program;
}

std::string trainer(int ranks) { return launched(ranks, TRAINER); }

std::string failing_trainer(int ranks, const std::string& faults) {
  return "env " + faults + " " + launched(ranks, TRAINER_FAILING);
}

TrainerTest::TrainerTest() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "_" + info->name();
  std::ranges::replace(name, '/', '_');
  folder_ = fs::temp_directory_path() / ("lockstep_" + std::to_string(getpid()) + "_" + name);
  fs::create_directories(folder_);
}

TrainerTest::~TrainerTest() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Outcome TrainerTest::trained(int ranks, const std::string& arguments) const {
  const Outcome outcome = train(ranks, arguments);
  EXPECT_EQ(outcome.code, 0) << ranks << " ranks, " << arguments << "\n" << outcome.text;
  return outcome;
}

std::string TrainerTest::data(const std::string& name, int samples, const std::string& more) const {
  const std::string size = more.find("--size") == std::string::npos ? " --size 12" : "";
  const std::string classes = more.find("--classes") == std::string::npos ? " --classes 4" : "";
  const Outcome made = run(std::string(DATATOOL) + " generate --out " + name + " --samples " +
                           std::to_string(samples) + size + classes + " " + more);
  EXPECT_EQ(made.code, 0) << made.text;
  return name;
}

std::set<std::string> TrainerTest::listing() const {
  std::set<std::string> names;
  const auto readable = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder_, readable))
    names.insert(entry.path().lexically_relative(folder_).string());
  return names;
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (fs::is_directory(file)) return "";
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string json_at(const fs::path& file, const std::string& pointer) {
  const auto json = nlohmann::json::parse(bytes_of(file), nullptr, false);
  const nlohmann::json::json_pointer at(pointer);
  return json.is_object() && json.contains(at) ? json.at(at).dump()
                                               : "nothing at '" + pointer + "' in '" + file.string() + "'";
}

double number_at(const fs::path& file, const std::string& pointer) {
  return std::strtod(json_at(file, pointer).c_str(), nullptr);
}

std::vector<int64_t> logged_steps(const fs::path& run, const std::string& type) {
  std::vector<int64_t> steps;
  std::istringstream lines(bytes_of(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    if (json.is_object() && json.value("type", "") == type) steps.push_back(json.value("step", int64_t{-1}));
  }
  return steps;
}

fs::path checkpoint_of(const fs::path& run, int64_t step) {
  const std::string digits = std::to_string(step);
  return run / "checkpoints" / ("step-" + std::string(8 - digits.size(), '0') + digits);
}

int64_t newest_step(const fs::path& run) {
  int64_t newest = -1;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    if (name.size() == 13) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::vector<Rank> ranks_in(const fs::path& folder) {
  std::vector<Rank> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    const fs::path program = fs::read_symlink(entry.path() / "exe", gone),
                   at = fs::read_symlink(entry.path() / "cwd", gone);
    if ((program != TRAINER && program != TRAINER_FAILING) || at != folder) continue;
    const std::string environment = bytes_of(entry.path() / "environ"), key = "OMPI_COMM_WORLD_RANK=";
    const size_t rank = environment.find(key);
    found.push_back({std::stoi(name),
                     rank == std::string::npos ? 0 : std::atoi(environment.c_str() + rank + key.size())});
  }
  std::ranges::sort(found, {}, &Rank::rank);
  return found;
}

}  // namespace lockstep::e2e

// The environment of every process that the tests start: theirs alone, so that a test program can be run by
// hand too.
int main(int argc, char** argv) {
  for (const char* setting :
       {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
        "OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_odls_base_sigkill_timeout=0",
        "OMP_NUM_THREADS=1", "LOCKSTEP_DEVICE_THREADS=1"}) {
    const std::string text = setting;
    setenv(text.substr(0, text.find('=')).c_str(), text.substr(text.find('=') + 1).c_str(), 1);
  }
  unsetenv("NO_COLOR");
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
