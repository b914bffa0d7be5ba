// A file descriptor that closes itself, and reads that are whole or an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// Read-only. read() may be called from many threads.
class PosixFile {
 public:
  /// Throws UserError naming the file: missing, not readable, no regular file (a directory, a pipe, a
  /// device).
  explicit PosixFile(const std::string& path);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;

  const std::string& path() const { return path_; }
  uint64_t size() const;
  /// Fills `out` from `offset`. Throws UserError when the file ends before, or cannot be read.
  void read(uint64_t offset, std::span<uint8_t> out) const;
  std::vector<uint8_t> read_all() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Makes a rename or a file durable: fsync of the path's inode (a directory too). Throws UserError.
void sync_path(const std::string& path);

/// The folder that holds `path`, "." for a bare name.
std::string folder_of(const std::string& path);

}  // namespace lockstep::data
