#include "monitor/run_directory.h"

#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <set>
#include <thread>

#include "unit/monitor/support.h"

// As on a file system without locks, while a test says so.
static bool locks_fail = false;
extern "C" int flock(int descriptor, int operation) noexcept {
  if (!locks_fail) return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}

namespace lockstep::monitor {
namespace {

using ::testing::HasSubstr;

class RunDirectoryTest : public Scratch {
 protected:
  fs::path runs_ = dir_ / "a" / "runs";
  fs::path next(const std::string& job) {
    RunDirectory run = RunDirectory::next(runs_, job);
    run.keep();
    return run.path();
  }
};

TEST_F(RunDirectoryTest, TheNextFreeNumberFollowsTheHighest) {
  EXPECT_EQ(next("cnn"), runs_ / "cnn-0001");
  EXPECT_EQ(next("cnn"), runs_ / "cnn-0002");
  EXPECT_EQ(next("cnn-big"), runs_ / "cnn-big-0001");
  fs::create_directory(runs_ / "cnn-0041");
  fs::create_directory(runs_ / "cnn-99x");
  EXPECT_EQ(next("cnn"), runs_ / "cnn-0042");
  fs::create_directory(runs_ / "cnn-12345");
  EXPECT_EQ(next("cnn"), runs_ / "cnn-12346");
  EXPECT_EQ(newest_run(runs_, "cnn"), runs_ / "cnn-12346");
  EXPECT_EQ(newest_run(runs_, "other"), std::nullopt);
  EXPECT_EQ(newest_run(dir_ / "none", "cnn"), std::nullopt);
}

TEST_F(RunDirectoryTest, NoTwoRunsGetTheSameNumber) {
  constexpr int kThreads = 4, kEach = 25;
  std::vector<fs::path> paths(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) paths[t * kEach + i] = next("cnn");
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), paths.size());
}

TEST_F(RunDirectoryTest, OneThatHoldsARunIsRefusedUnlessResuming) {
  const fs::path path = dir_ / "mine";
  RunDirectory::claim(path, false).keep();
  UserError e = error_of([&] { RunDirectory::claim(path, false); });
  EXPECT_EQ(e.headline(), "run.dir '" + path.string() + "' is in use");
  EXPECT_EQ(error_of([&] { RunDirectory::claim(path / "", false); }).headline(), e.headline());
  EXPECT_EQ(RunDirectory::claim(path, true).path(), path);
  EXPECT_TRUE(fs::exists(path / kMetricsFile));
  for (const char* sign : {kSummaryFile, kCheckpoints}) {
    fs::create_directories(dir_ / "other" / sign);
    EXPECT_THAT(error_of([&] { RunDirectory::claim(dir_ / "other", false); }).headline(),
                HasSubstr("in use"));
    fs::remove_all(dir_ / "other");
  }
}

TEST_F(RunDirectoryTest, OneThatARunIsWritingToIsRefusedAlsoWhenResuming) {
  const fs::path path = dir_ / "mine";
  std::optional<RunDirectory> first = RunDirectory::claim(path, false);
  first->keep();
  EXPECT_EQ(first->lock_failure(), "");
  for (bool resuming : {false, true}) {
    const UserError e = error_of([&] { RunDirectory::claim(path, resuming); });
    EXPECT_EQ(e.headline(), "run.dir '" + path.string() + "' is in use");
    EXPECT_THAT(e.why(), HasSubstr("process '" + std::to_string(getpid()) + "' on '"));
  }
  RunDirectory moved = std::move(*first);
  first.reset();
  EXPECT_THAT(error_of([&] { RunDirectory::claim(path, true); }).headline(), HasSubstr("in use"));
  RunDirectory(std::move(moved)).keep();
  EXPECT_EQ(RunDirectory::claim(path, true).path(), path);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()),
            1);  // the lock's file is gone
}

TEST_F(RunDirectoryTest, ARunThatCouldNotLockLeavesTheLockOfAnother) {
  const fs::path path = dir_ / "mine";
  RunDirectory first = RunDirectory::claim(path, false);
  first.keep();
  locks_fail = true;
  {
    RunDirectory second = RunDirectory::claim(path, true);
    EXPECT_EQ(second.lock_failure(), "No locks available");
  }
  { RunDirectory unlocked = RunDirectory::claim(dir_ / "other", false); }
  locks_fail = false;
  EXPECT_FALSE(fs::exists(dir_ / "other"));
  EXPECT_THAT(error_of([&] { RunDirectory::claim(path, true); }).why(),
              HasSubstr("process '" + std::to_string(getpid()) + "' on '"));
}

TEST_F(RunDirectoryTest, ALockThatADeadProcessLeftIsTaken) {
  const fs::path path = dir_ / "mine";
  if (const pid_t child = fork(); child == 0) {
    RunDirectory run = RunDirectory::claim(path, false);
    run.keep();
    _exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 2);
  EXPECT_EQ(RunDirectory::claim(path, true).path(), path);
}

TEST_F(RunDirectoryTest, AnExistingDirectoryWithoutARunIsTaken) {
  std::ofstream(dir_ / "job.ini") << "x";
  RunDirectory::claim(dir_, false).keep();
  EXPECT_TRUE(fs::exists(dir_ / kMetricsFile));
}

TEST_F(RunDirectoryTest, AnErrorDuringSetUpLeavesNothingBehind) {
  { RunDirectory run = RunDirectory::next(runs_, "cnn"); }
  EXPECT_FALSE(fs::exists(dir_ / "a"));
  fs::create_directories(dir_ / "mine");
  { RunDirectory run = RunDirectory::claim(dir_ / "mine" / "deep", false); }
  EXPECT_TRUE(fs::exists(dir_ / "mine"));
  EXPECT_FALSE(fs::exists(dir_ / "mine" / "deep"));
  RunDirectory::claim(dir_ / "mine", false).keep();
  { RunDirectory run = RunDirectory::claim(dir_ / "mine", true); }
  EXPECT_TRUE(fs::exists(dir_ / "mine" / kMetricsFile));
}

TEST_F(RunDirectoryTest, APathThatCannotBeMadeIsNamedWithTheReason) {
  std::ofstream(dir_ / "file") << "x";
  UserError e = error_of([&] { RunDirectory::claim(dir_ / "file", false); });
  EXPECT_EQ(e.headline(), "cannot write to run.dir '" + (dir_ / "file").string() + "'");
  EXPECT_EQ(e.why(), "it is not a directory");
  e = error_of([&] { RunDirectory::claim(dir_ / "file" / "run", false); });
  EXPECT_THAT(e.headline(), HasSubstr((dir_ / "file").string()));
  EXPECT_EQ(error_of([&] { RunDirectory::next("/proc", "cnn"); }).why(), "No such file or directory");
  EXPECT_EQ(error_of([&] { RunDirectory::next("/proc/runs", "cnn"); }).why(), "No such file or directory");
}

TEST_F(RunDirectoryTest, TheProbeFindsTooLittleSpaceAndLeavesNoFile) {
  RunDirectory run = RunDirectory::claim(dir_ / "run", false);
  run.probe(1);
  UserError e = error_of([&] { run.probe(uint64_t{1} << 60); });
  EXPECT_EQ(e.headline(), "cannot write to run.dir '" + (dir_ / "run").string() + "'");
  EXPECT_THAT(e.why(), HasSubstr("takes '1024 PiB'"));
  EXPECT_FALSE(fs::exists(dir_ / "run" / ".probe"));
}

TEST_F(RunDirectoryTest, TheProbeFindsWhatCannotBeWritten) {
  RunDirectory run = RunDirectory::claim(dir_ / "run", false);
  fs::remove_all(dir_ / "run");
  EXPECT_EQ(error_of([&] { run.probe(1); }).why(), "No such file or directory");
}

}  // namespace
}  // namespace lockstep::monitor
