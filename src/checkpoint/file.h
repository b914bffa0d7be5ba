// Files whose every byte is counted, hashed and on the disk before anyone relies on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/hash.h"

namespace lockstep::checkpoint {

/// Size and XXH3 of a file as it was written.
struct FileRecord {
  std::string name;
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
  bool operator==(const FileRecord&) const = default;
};

/// Throws UserError "cannot VERB 'path'" with the text of `error` (an errno) and what to do about it.
[[noreturn]] void throw_file_error(const std::string& verb, const std::filesystem::path& path, int error);

/// What is at `path`, links followed: of type not_found where nothing is. Throws UserError where the system
/// does not tell, as behind a directory that may not be searched.
std::filesystem::file_status status_of(const std::filesystem::path& path);

/// An open descriptor, closed on destruction.
class Descriptor {
 public:
  /// Throws UserError when open(2) fails.
  Descriptor(std::filesystem::path path, int flags);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_;
};

/// A regular file, to be read. Throws UserError for anything else.
Descriptor open_file(const std::filesystem::path& path);

/// Writes a new file, hashing as it goes. Throws UserError when the system refuses a byte.
class HashedWriter {
 public:
  explicit HashedWriter(const std::filesystem::path& path);
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text);
  /// Waits until the file is on the disk.
  FileRecord finish();

 private:
  Descriptor file_;
  Xxh3Stream hash_;
  uint64_t bytes_ = 0;
};

/// Reads a file by pread, so that a failing disk is a UserError and not a SIGBUS. The name is the last part
/// of `path`.
FileRecord hash_file(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

/// Makes renames and new entries in a directory durable.
void sync_directory(const std::filesystem::path& directory);
/// rename(2). Throws UserError.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep::checkpoint
