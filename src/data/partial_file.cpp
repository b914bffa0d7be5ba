#include "data/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "data/posix_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".partial";

/// "TARGET.HOST.", which the process id follows.
std::string prefix_of(const std::string& target) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.{}.", target, host.data());
}

/// Locks the whole file for this descriptor; false where another one has it, or the file system has no locks.
bool lock(int descriptor, int command) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(descriptor, command, &whole) == 0;
}

bool has_a_name(int descriptor) {
  struct stat status;
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

void remove_leftovers(const std::string& target) {
  const std::string start = fs::path(prefix_of(target)).filename(), end = kSuffix;
  std::error_code stop;
  for (fs::directory_iterator entry(folder_of(target), stop), none; !stop && entry != none;
       entry.increment(stop)) {
    const std::string name = entry->path().filename();
    if (name.size() < start.size() + end.size() || !name.starts_with(start) || !name.ends_with(end)) continue;
    if (name.find_first_not_of("0123456789-", start.size()) != name.size() - end.size()) continue;
    const int left = ::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (left < 0) continue;
    if (lock(left, F_OFD_SETLK) && has_a_name(left)) ::unlink(entry->path().c_str());
    ::close(left);
  }
}

/// rename() that replaces nothing. Network file systems lack the flag, some others lack links.
bool rename_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (::link(from.c_str(), to.c_str()) != 0) return false;
  ::unlink(from.c_str());
  return true;
}

}  // namespace

PartialFile::PartialFile(const std::string& target) : target_(target) {
  remove_leftovers(target);
  create();
}

void PartialFile::create() {
  const std::string start = prefix_of(target_) + std::to_string(::getpid());
  for (int taken = 0;; ++taken) {
    path_ = start + (taken > 0 ? "-" + std::to_string(taken) : "") + kSuffix;
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (const int code = errno; descriptor_ < 0) {
      if (code == EEXIST) continue;
      throw UserError(
          fmt::format("file '{}' cannot be written", target_),
          fmt::format("folder '{}': {}", folder_of(target_), std::strerror(code)),
          code == ENOENT ? "make the folder, or name another" : "name a folder that can be written");
    }
    lock(descriptor_, F_OFD_SETLKW);
    if (has_a_name(descriptor_)) return;
    ::close(descriptor_);  // another process took it for a leftover before it was locked
  }
}

PartialFile::~PartialFile() {
  if (!published_) std::remove(path_.c_str());
  ::close(descriptor_);
}

bool PartialFile::publish(bool replace) {
  auto fail = [](const std::string& what, int code, const char* todo) {
    throw UserError(what, std::strerror(code), todo);
  };
  if (::fsync(descriptor_) != 0)
    fail(fmt::format("file '{}' could not be made durable", path_), errno,
         "check the disk; nothing was left behind");
  if (replace ? std::rename(path_.c_str(), target_.c_str()) == 0 : rename_new(path_, target_)) {
    published_ = true;
    sync_path(folder_of(target_));
    return true;
  }
  const int code = errno;
  if (code == EEXIST && !replace) return false;
  fail(fmt::format("file '{}' cannot be renamed to '{}'", path_, target_), code,
       code == ENOENT   ? "something removed it while it was written: run the command again"
       : code == EISDIR ? "name a file, not a folder"
                        : "name a file in another folder; nothing was left behind");
  return false;
}

}  // namespace lockstep::data
