#include "checkpoint/save.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "checkpoint/load.h"
#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Save : public Scratch {
 protected:
  SaverOptions options(int keep = 0) { return {.directory = dir_, .retention = {.keep = keep}}; }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (auto& entry : fs::directory_iterator(dir_)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  void expect_whole(const Checkpoint& c, int64_t step) {
    Snapshot s = make_snapshot(step);
    EXPECT_EQ(c.state, s.state);
    const SafetensorsFile model = c.model(), optimizer = c.optimizer();
    for (auto [file, storage] : {std::pair(&model, &s.model), {&optimizer, &s.optimizer}}) {
      ASSERT_EQ(file->tensors().size(), storage->size());
      for (const TensorView& t : storage->views()) {
        const TensorView* found = file->find(t.name);
        ASSERT_NE(found, nullptr) << t.name;
        EXPECT_EQ(found->shape, t.shape);
        EXPECT_TRUE(std::ranges::equal(found->data, t.data)) << t.name;
      }
    }
  }
};

TEST_F(Save, ACheckpointComesBackAsItWas) {
  fs::path path = write_checkpoint(dir_, make_snapshot(120));
  EXPECT_EQ(path, dir_ / "step-00000120");
  expect_whole(load_checkpoint(path), 120);
  EXPECT_THAT(names(), ElementsAre("step-00000120"));
}

TEST_F(Save, TheSameStepTwiceIsKeptWhenIdentical) {
  fs::path path = write_checkpoint(dir_, make_snapshot(1));
  auto written = fs::last_write_time(path / kModelFile);
  fs::last_write_time(path / kModelFile, written - std::chrono::hours(1));
  write_checkpoint(dir_, make_snapshot(1));
  EXPECT_EQ(fs::last_write_time(path / kModelFile), written - std::chrono::hours(1));
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(Save, TheSameStepTwiceIsReplacedWhenItDiffersOrIsDamaged) {
  Snapshot other = make_snapshot(1);
  other.model.as<float>(0)[0] = 1e9f;
  fs::path path = write_checkpoint(dir_, other);
  write_checkpoint(dir_, make_snapshot(1));
  expect_whole(load_checkpoint(path), 1);

  fs::resize_file(path / kModelFile, 10);
  write_checkpoint(dir_, make_snapshot(1));
  expect_whole(load_checkpoint(path), 1);
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(Save, TheSaverWritesInTheBackgroundAndReusesStorage) {
  Saver saver(options());
  saver.save(make_snapshot(1));
  Snapshot s = saver.take_storage();
  EXPECT_EQ(saver.last_committed(), dir_ / "step-00000001");
  const std::byte* where = s.model.bytes(0).data();
  s.state.step = 2;
  saver.save(std::move(s));
  s = saver.take_storage();
  EXPECT_EQ(s.model.bytes(0).data(), where);
  EXPECT_FALSE(saver.take_failure());
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(Save, SaveReturnsBeforeItIsWrittenAndASecondOneWaits) {
  std::promise<void> go;
  std::shared_future<void> may_go(go.get_future());
  std::atomic<int> begun = 0;
  SaverOptions o = options();
  o.fault_point = [&](const std::string& point) {
    if (point != "partial created") return;
    ++begun;
    may_go.wait();
  };
  Saver saver(o);
  saver.save(make_snapshot(1));
  EXPECT_THAT(saver.last_committed().string(), IsEmpty());
  auto second = std::async(std::launch::async, [&] { saver.save(make_snapshot(2)); });
  while (begun == 0) std::this_thread::yield();
  EXPECT_EQ(begun, 1);
  go.set_value();
  second.get();
  saver.finish();
  EXPECT_EQ(begun, 2);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

const char* const kPoints[] = {"partial created", "model written",  "optimizer written",
                               "state written",   "partial synced", "renamed",
                               "committed",       "trashed",        "deleted"};

/// Runs a save of `step` in a process of its own that dies like by kill -9 at `point`. False: it never got
/// there.
bool save_and_die(const fs::path& dir, int64_t step, int keep, const std::string& point) {
  pid_t child = fork();
  if (child == 0) {
    SaverOptions o{.directory = dir, .retention = {.keep = keep}};
    o.fault_point = [&](const std::string& at) {
      if (at == point) _exit(9);
    };
    Saver saver(o);
    Snapshot s = make_snapshot(step);
    if (point == "former one set aside") s.state.ranks = 2;
    saver.save(std::move(s));
    saver.finish();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 9;
}

TEST_F(Save, KilledAtAnyPointResumeStillWorks) {
  for (const std::string point : kPoints) {
    SCOPED_TRACE(point);
    fs::remove_all(dir_);
    write_checkpoint(dir_, make_snapshot(1));
    ASSERT_TRUE(save_and_die(dir_, 2, 1, point));

    const bool committed =
        point == "renamed" || point == "committed" || point == "trashed" || point == "deleted";
    Latest latest = find_latest(dir_);
    ASSERT_TRUE(latest.checkpoint);
    EXPECT_THAT(latest.damaged, IsEmpty());
    expect_whole(*latest.checkpoint, committed ? 2 : 1);

    Saver resumed(options(1));
    expect_whole(*find_latest(dir_).checkpoint, committed ? 2 : 1);
    resumed.save(make_snapshot(3));
    resumed.finish();
    EXPECT_FALSE(resumed.take_failure());
    EXPECT_THAT(names(), ElementsAre("step-00000003"));
    expect_whole(*find_latest(dir_).checkpoint, 3);
  }
}

TEST_F(Save, KilledWhileReplacingTheOnlyOneResumeStillWorks) {
  write_checkpoint(dir_, make_snapshot(1));
  ASSERT_TRUE(save_and_die(dir_, 1, 1, "former one set aside"));
  EXPECT_THAT(names(), ElementsAre("step-00000001.partial", "step-00000001.replaced"));
  expect_whole(*find_latest(dir_).checkpoint, 1);
  Saver resumed(options());
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
  expect_whole(*find_latest(dir_).checkpoint, 1);
}

TEST_F(Save, AReplacedOneComesBackWhereTheNewOneIsDamaged) {
  const fs::path whole = write_checkpoint(dir_, make_snapshot(1)), replaced = dir_ / "step-00000001.replaced";
  fs::copy(whole, replaced, fs::copy_options::recursive);
  fs::resize_file(whole / kModelFile, 10);
  clean_stale(dir_);
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
  expect_whole(*find_latest(dir_).checkpoint, 1);
  // Where neither is whole, nothing is thrown away.
  fs::copy(whole, replaced, fs::copy_options::recursive);
  for (const fs::path& p : {whole, replaced}) fs::resize_file(p / kModelFile, 10);
  clean_stale(dir_);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000001.replaced"));
}

TEST_F(Save, AFailureAtAnyPointLosesThatCheckpointOnly) {
  for (const std::string point : kPoints) {
    if (point == "renamed") break;
    SCOPED_TRACE(point);
    fs::remove_all(dir_);
    SaverOptions o = options();
    o.fault_point = [&](const std::string& at) {
      if (at == point) throw_file_error("write", "a/file", ENOSPC);
    };
    write_checkpoint(dir_, make_snapshot(1));
    Saver saver(o);
    saver.save(make_snapshot(2));
    saver.finish();
    auto failure = saver.take_failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->headline(), "the checkpoint of step '2' was not written");
    EXPECT_EQ(failure->why(), "cannot write 'a/file': No space left on device");
    EXPECT_THAT(failure->todo(), HasSubstr("training goes on"));
    EXPECT_FALSE(saver.take_failure());
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
  }
}

TEST_F(Save, AFailureWhileReplacingGivesTheFormerOneBack) {
  write_checkpoint(dir_, make_snapshot(1));
  Snapshot other = make_snapshot(1);
  other.state.ranks = 2;
  EXPECT_THROW(write_checkpoint(dir_, other,
                                [](const std::string& at) {
                                  if (at == "former one set aside") throw std::runtime_error("x");
                                }),
               std::runtime_error);
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
  expect_whole(*find_latest(dir_).checkpoint, 1);
}

TEST_F(Save, AWriteThatTheSystemCutsShortIsReportedAndTheNextOneSucceeds) {
  Saver saver(options());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small{64, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  saver.save(make_snapshot(1));
  saver.finish();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);

  auto failure = saver.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->why(), HasSubstr("model.safetensors': File too large"));
  EXPECT_THAT(names(), IsEmpty());
  saver.save(make_snapshot(2));
  saver.finish();
  EXPECT_FALSE(saver.take_failure());
  EXPECT_THAT(names(), ElementsAre("step-00000002"));
}

TEST_F(Save, ADirectoryThatCannotBeMadeIsReported) {
  write_text(dir_ / "file", "x");
  EXPECT_EQ(error_of([&] { Saver saver({.directory = dir_ / "file"}); }).why(), "Not a directory");
  Saver saver({.directory = dir_ / "file" / "checkpoints"});
  saver.save(make_snapshot(1));
  saver.finish();
  auto failure = saver.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->why(), HasSubstr("file/checkpoints': Not a directory"));
}

}  // namespace
}  // namespace lockstep::checkpoint
