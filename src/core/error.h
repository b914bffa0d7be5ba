// The two kinds of expected failure. Anything else that is thrown is a bug (exit 1).
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Process exit codes that scripts rely on (docs/jobs.md).
enum ExitCode : int {
  kDone = 0,
  kInternalError = 1,
  kUserError = 2,
  kStoppedRequeue = 3,
  kClusterFailed = 4
};

/// An error for people: one line what happened, one line why, one line what to do, every value in them
/// quoted.
class Error : public std::runtime_error {
 public:
  Error(std::string what, std::string why, std::string todo);
  const std::string& headline() const { return what_; }
  const std::string& why() const { return why_; }
  const std::string& todo() const { return todo_; }
  virtual int exit_code() const = 0;

 private:
  std::string what_, why_, todo_;
};

/// The user's mistake: an option, the job, the data, a checkpoint. Exit 2.
class UserError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kUserError; }
};

/// A rank, link or device failed. Exit 4.
class ClusterError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kClusterFailed; }
};

/// The candidate with the smallest edit distance to `word`, or "" when none is near enough to suggest.
template <class Strings>
std::string nearest(const std::string& word, const Strings& candidates);
int edit_distance(const std::string& a, const std::string& b);

template <class Strings>
std::string nearest(const std::string& word, const Strings& candidates) {
  std::string best;
  int best_distance = static_cast<int>(word.size()) / 3 + 2;
  for (const std::string& c : candidates)
    if (int d = edit_distance(word, c); d < best_distance) best_distance = d, best = c;
  return best;
}

}  // namespace lockstep
