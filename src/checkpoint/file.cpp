#include "checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::checkpoint {

// Hashed and written in pieces that are still in the cache for the second use.
constexpr size_t kPiece = size_t{1} << 20;

static std::string advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there, or choose another place";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make it accessible to you, or choose another place";
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    default:
      return "check the file system";
  }
}

void throw_file_error(const std::string& verb, const std::filesystem::path& path, int error) {
  throw UserError(fmt::format("cannot {} '{}'", verb, path.string()), std::strerror(error), advice(error));
}

std::filesystem::file_status status_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::status_known(status)) throw_file_error("read", path, error.value());
  return status;
}

Descriptor::Descriptor(std::filesystem::path path, int flags)
    : path_(std::move(path)), fd_(::open(path_.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw_file_error(flags & O_CREAT ? "create" : "open", path_, errno);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

HashedWriter::HashedWriter(const std::filesystem::path& path) : file_(path, O_WRONLY | O_CREAT | O_TRUNC) {}

void HashedWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    auto piece = bytes.first(std::min(bytes.size(), kPiece));
    hash_.update(piece.data(), piece.size());
    bytes_ += piece.size();
    bytes = bytes.subspan(piece.size());
    while (!piece.empty()) {
      ssize_t n = ::write(file_.get(), piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_file_error("write", file_.path(), errno);
      piece = piece.subspan(static_cast<size_t>(n));
    }
  }
}

void HashedWriter::write(const std::string& text) { write(std::as_bytes(std::span(text))); }

FileRecord HashedWriter::finish() {
  if (::fsync(file_.get()) != 0) throw_file_error("write", file_.path(), errno);
  return {file_.path().filename().string(), bytes_, hash_.digest()};
}

Descriptor open_file(const std::filesystem::path& path) {
  Descriptor file(path, O_RDONLY | O_NONBLOCK);  // a pipe must not hold us up
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_file_error("read", path, errno);
  if (!S_ISREG(status.st_mode))
    throw UserError(fmt::format("cannot read '{}'", path.string()), "it is no regular file",
                    "check the path");
  return file;
}

static void read_pieces(const std::filesystem::path& path, auto&& use) {
  const Descriptor file = open_file(path);
  std::vector<std::byte> piece(kPiece);
  for (off_t at = 0;;) {
    ssize_t n = ::pread(file.get(), piece.data(), piece.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("read", path, errno);
    if (n == 0) return;
    use(piece.data(), static_cast<size_t>(n));
    at += n;
  }
}

FileRecord hash_file(const std::filesystem::path& path) {
  Xxh3Stream hash;
  uint64_t bytes = 0;
  read_pieces(path, [&](const std::byte* data, size_t n) {
    hash.update(data, n);
    bytes += n;
  });
  return {path.filename().string(), bytes, hash.digest()};
}

std::string read_text(const std::filesystem::path& path) {
  std::string text;
  read_pieces(path,
              [&](const std::byte* data, size_t n) { text.append(reinterpret_cast<const char*>(data), n); });
  return text;
}

void sync_directory(const std::filesystem::path& directory) {
  Descriptor d(directory, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync a directory and say EINVAL; there is nothing better to do there.
  if (::fsync(d.get()) != 0 && errno != EINVAL) throw_file_error("sync", directory, errno);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error("rename", from, errno);
}

}  // namespace lockstep::checkpoint
