#include "data/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep::data {

/// "pipe", "device", ... for what is no regular file, after symbolic links; "" for one, or where nobody can
/// say.
static std::string other_kind(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return "";
  return S_ISDIR(status.st_mode)                              ? "directory"
         : S_ISFIFO(status.st_mode)                           ? "pipe"
         : S_ISSOCK(status.st_mode)                           ? "socket"
         : S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) ? "device"
                                                              : "special file";
}

PosixFile::PosixFile(const std::string& path) : path_(path) {
  // Asked first: open() waits for a pipe's writer, and may act on a device.
  if (const std::string kind = other_kind(path); !kind.empty())
    throw UserError(
        fmt::format("'{}' cannot be read as a file", path), fmt::format("it is a {}", kind),
        kind == "directory" ? "name a file in it" : "save what comes from it to a file, and name that");
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int code = errno;
    if (code == ENOENT)
      throw UserError(fmt::format("file '{}' does not exist", path), "",
                      "check the path, or make the file with datatool");
    throw UserError(fmt::format("file '{}' cannot be read", path), std::strerror(code),
                    "check the permissions of the file and its folders");
  }
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

uint64_t PosixFile::size() const {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

void PosixFile::read(uint64_t offset, std::span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw UserError(fmt::format("file '{}' cannot be read at byte '{}'", path_, offset + done),
                      got == 0 ? "the file ends there: it was cut short" : std::strerror(errno),
                      "check the disk, or copy the file again");
    done += static_cast<size_t>(got);
  }
}

std::vector<uint8_t> PosixFile::read_all() const {
  std::vector<uint8_t> bytes(size());
  read(0, bytes);
  return bytes;
}

void sync_path(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int code = errno;
  if (descriptor >= 0) ::close(descriptor);
  // EINVAL: some file systems cannot sync a directory; the rename is still atomic there.
  if (!synced && code != EINVAL)
    throw UserError(fmt::format("'{}' could not be made durable", path), std::strerror(code),
                    "check the disk");
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace lockstep::data
