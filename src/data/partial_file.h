// The file that a writer fills before it takes its name.
#pragma once

#include <string>

namespace lockstep::data {

/// TARGET.HOST.PID.partial: a name of its own, so that any number of processes may write one target at once.
/// It is locked while it is written. Why a lock tells what a killed process left, and not the number in the
/// name: numbers are given again, and containers that share a folder may all have the same one.
class PartialFile {
 public:
  /// Makes the file, empty, after removing those that killed processes of this host left for `target`. Throws
  /// UserError: the folder does not exist or cannot be written.
  explicit PartialFile(const std::string& target);
  ~PartialFile();  ///< removes it, unless it was published
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& path() const { return path_; }
  /// Makes it durable and renames it to the target. False, with nothing done, where the target exists and is
  /// not to be replaced. Throws UserError.
  bool publish(bool replace);

 private:
  void create();
  std::string target_, path_;
  int descriptor_ = -1;  ///< holds the lock
  bool published_ = false;
};

}  // namespace lockstep::data
