#include "monitor/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace lockstep::monitor {

namespace fs = std::filesystem;

constexpr const char* kLockFile = ".lock";

[[noreturn]] static void refuse(const fs::path& path, const std::string& why) {
  throw UserError(fmt::format("cannot write to run.dir '{}'", path.string()), why,
                  "choose another '--run.dir', or make this one writable with space enough");
}

/// What is there, links followed. Refuses a path that may not be searched.
static fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) refuse(path, error.message());
  return status;
}

/// Makes `path` and the parents that are missing; adds what it made.
static void make_directories(const fs::path& path, std::vector<fs::path>& made) {
  if (path.empty() || fs::is_directory(status_of(path))) return;
  make_directories(path.parent_path(), made);
  if (mkdir(path.c_str(), 0777) == 0) return made.push_back(path);
  if (errno != EEXIST) refuse(path, std::strerror(errno));
  if (!fs::is_directory(status_of(path))) refuse(path, "it is not a directory");
}

/// The file that says a run is here. Made by O_EXCL: of two runs that want one directory, one gets it.
static bool make_marker(const fs::path& directory, std::vector<fs::path>& made) {
  const fs::path marker = directory / kMetricsFile;
  int fd = open(marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return false;
  if (fd < 0) refuse(directory, std::strerror(errno));
  close(fd);
  made.push_back(marker);
  return true;
}

/// N of JOB-N, 0 when the name is another.
static int64_t run_number(const std::string& name, const std::string& job) {
  if (!name.starts_with(job + "-")) return 0;
  int64_t number = 0;
  const char* end = name.data() + name.size();
  auto [stop, error] = std::from_chars(name.data() + job.size() + 1, end, number);
  return error == std::errc() && stop == end ? number : 0;
}

static int64_t highest_number(const fs::path& runs, const std::string& job, fs::path* newest) {
  int64_t highest = 0;
  std::error_code error;
  fs::directory_iterator at(runs, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    int64_t number = run_number(at->path().filename().string(), job);
    if (number <= highest) continue;
    highest = number;
    if (newest) *newest = at->path();
  }
  return highest;
}

RunDirectory RunDirectory::next(const fs::path& runs, const std::string& job) {
  RunDirectory run;
  make_directories(runs, run.made_);
  for (int64_t number = highest_number(runs, job, nullptr) + 1;; ++number) {
    run.path_ = runs / fmt::format("{}-{:04}", job, number);
    if (mkdir(run.path_.c_str(), 0777) == 0) break;
    if (errno != EEXIST) refuse(run.path_, std::strerror(errno));
  }
  run.made_.push_back(run.path_);
  run.lock();
  make_marker(run.path_, run.made_);
  return run;
}

RunDirectory RunDirectory::claim(const fs::path& path, bool resuming) {
  RunDirectory run;
  run.path_ = path.has_filename() ? path : path.parent_path();  // "runs/x/"
  make_directories(run.path_, run.made_);
  run.lock();
  const bool holds_run =
      fs::exists(status_of(run.path_ / kSummaryFile)) || fs::exists(status_of(run.path_ / kCheckpoints));
  const bool made = (!holds_run || resuming) && make_marker(run.path_, run.made_);
  if (!made && !resuming)
    throw UserError(fmt::format("run.dir '{}' is in use", run.path_.string()), "it holds a run already",
                    "choose another '--run.dir', or continue that run with '--resume auto'");
  return run;
}

void RunDirectory::lock() {
  const fs::path file = path_ / kLockFile;
  const std::string busy = fmt::format("run.dir '{}' is in use", path_.string());
  for (;;) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) refuse(path_, std::strerror(errno));
    const int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error == EWOULDBLOCK) {
      char holder[256] = {};
      const ssize_t size = pread(fd, holder, sizeof holder - 1, 0);
      close(fd);
      throw UserError(
          busy, size > 0 ? fmt::format("{} is running in it", holder) : "another process is starting in it",
          "wait until that run ends, stop it, or choose another '--run.dir'");
    }
    struct stat locked {
    }, named{};
    const bool same =
        fstat(fd, &locked) == 0 && stat(file.c_str(), &named) == 0 && locked.st_ino == named.st_ino;
    if (!same) {  // the run before removed it just now
      close(fd);
      continue;
    }
    lock_ = fd;
    if (error != 0) {
      lock_failure_ = std::strerror(error);
      if (!made_.empty() && made_.back() == path_) made_.push_back(file);  // nobody's but ours
      return;
    }
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const std::string me = fmt::format("process '{}' on '{}'", getpid(), host);
    // On a full disk the holder stays unnamed; probe() refuses that disk.
    [[maybe_unused]] const bool noted =
        ftruncate(fd, 0) == 0 && pwrite(fd, me.data(), me.size(), 0) == static_cast<ssize_t>(me.size());
    return;
  }
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      made_(std::exchange(other.made_, {})),
      lock_(std::exchange(other.lock_, -1)),
      lock_failure_(std::move(other.lock_failure_)) {}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  // Without the lock, the file may be that of a run that has it.
  if (lock_ >= 0 && lock_failure_.empty()) fs::remove(path_ / kLockFile, ignored);
  std::for_each(made_.rbegin(), made_.rend(), [&](const fs::path& path) { fs::remove(path, ignored); });
  if (lock_ >= 0) close(lock_);
}

void RunDirectory::probe(uint64_t bytes) const {
  struct statvfs space {};
  if (statvfs(path_.c_str(), &space) != 0) refuse(path_, std::strerror(errno));
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  if (free < bytes)
    refuse(path_, fmt::format("'{}' are free there, a run with two checkpoints takes '{}'", human_bytes(free),
                              human_bytes(bytes)));
  const fs::path file = path_ / ".probe";
  int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) refuse(path_, std::strerror(errno));
  const std::vector<char> page(4096);
  const bool written =
      write(fd, page.data(), page.size()) == static_cast<ssize_t>(page.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  unlink(file.c_str());
  if (!written) refuse(path_, error ? std::strerror(error) : "no space left");
}

std::optional<fs::path> newest_run(const fs::path& runs, const std::string& job) {
  fs::path newest;
  if (highest_number(runs, job, &newest) == 0) return std::nullopt;
  return newest;
}

}  // namespace lockstep::monitor
