// run.dir: where a run writes. Claimed by one run, locked while that run lives, never reused silently, and
// probed before training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::monitor {

inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kCheckpoints = "checkpoints";

/// A claim on a directory: while the object lives, no other process can make one, on this host or, where the
/// file system shares locks, on another. The lock goes with the process, however that ends. What the claim
/// made is removed again when the object goes before keep(), so that an error found during set-up leaves
/// nothing behind.
class RunDirectory {
 public:
  /// The next free `runs`/JOB-NNNN, safe against other processes that do the same. Throws UserError.
  static RunDirectory next(const std::filesystem::path& runs, const std::string& job);
  /// `path` itself, made with its parents when missing. Throws UserError when another process has it, naming
  /// host and process, and when it holds a run, unless `resuming`.
  static RunDirectory claim(const std::filesystem::path& path, bool resuming);

  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Why the directory could not be locked against other runs; empty where it is.
  const std::string& lock_failure() const { return lock_failure_; }
  /// Throws UserError naming path and reason when a file cannot be written and synced there, or fewer than
  /// `bytes` are free.
  void probe(uint64_t bytes) const;
  /// The run begins: the directory stays.
  void keep() { made_.clear(); }

 private:
  RunDirectory() = default;
  void lock();
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // in order of making
  int lock_ = -1;                            // a file of run.dir, locked with flock(2)
  std::string lock_failure_;
};

/// The highest-numbered `runs`/JOB-NNNN, to resume without naming it.
std::optional<std::filesystem::path> newest_run(const std::filesystem::path& runs, const std::string& job);

}  // namespace lockstep::monitor
