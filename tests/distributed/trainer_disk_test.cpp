// A full disk, made of a small file system in memory, and a slow one.
#include <signal.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cstring>
#include <fstream>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class FullDisk : public Refusal {
 protected:
  FullDisk() { data("train.h5", 203); }
  ~FullDisk() override {
    if (mounted_) umount2((folder_ / "disk").c_str(), MNT_DETACH);
  }

  /// False, with the reason in why_, where the test may not mount.
  bool mount_disk(const char* size) {
    fs::create_directories(folder_ / "disk");
    mounted_ = mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, size) == 0;
    why_ = std::string("a small disk cannot be mounted: ") + std::strerror(errno);
    return mounted_;
  }

  uint64_t free_bytes() const {
    struct statvfs s {};
    statvfs((folder_ / "disk").c_str(), &s);
    return s.f_bavail * s.f_frsize;
  }

  bool mounted_ = false;
  std::string why_;
  const std::string job_ = kGood + "--run.dir disk/run --schedule.name constant --checkpoint.every 1 ";
};

TEST_F(FullDisk, IsFoundBeforeTraining) {
  if (!mount_disk("size=1m")) GTEST_SKIP() << why_;
  for (int ranks : {1, 2})
    expect_refusal(trainer(ranks) + " " + job_, {"cannot write to run\\.dir 'disk/run'",
                                                 "are free there, a run with two checkpoints takes"});
}

TEST_F(FullDisk, LaterLosesThatCheckpointAloneAndSaysSo) {
  if (!mount_disk("size=8m")) GTEST_SKIP() << why_;
  trained(1, kGood + "--run.dir whole --schedule.name constant --train.steps 4");
  Process process(folder_, trainer(2) + " " + job_ + "--train.steps 1000000 --checkpoint.keep 2");
  ASSERT_TRUE(process.prints("\nbatch\n")) << process.text();
  {
    std::ofstream ballast(folder_ / "disk" / "ballast", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (ballast.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  ASSERT_TRUE(process.prints("was not written")) << process.text();
  fs::remove(folder_ / "disk" / "ballast");
  const int64_t before = newest_step(folder_ / "disk" / "run");
  for (int tenths = 0; tenths < 600 && newest_step(folder_ / "disk" / "run") < before + 2; ++tenths)
    usleep(100'000);
  process.signal(SIGUSR1);
  const Outcome o = process.wait();
  EXPECT_EQ(o.code, 3) << o.text;
  EXPECT_THAT(o.text, ContainsRegex("warning: the checkpoint of step '[0-9]+' was not written\n.*No space "
                                    "left on device\n.*training goes on"));
  for (const std::string& name : listing()) EXPECT_EQ(count(name, ".partial"), 0) << name;
}

TEST_F(FullDisk, AtTheEndIsAnErrorAndTheRunGoesOnOnceThereIsRoom) {
  if (!mount_disk("size=6m")) GTEST_SKIP() << why_;
  const std::string job = job_ + "--checkpoint.keep 1000 --train.steps 40 ";
  trained(1, job + "--run.dir whole");
  const Outcome o = train(2, job);
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
  EXPECT_THAT(o.text, HasSubstr("the run ended at step '40' without its last checkpoint"));
  ASSERT_GT(newest_step(folder_ / "disk/run"), 5);
  EXPECT_LT(newest_step(folder_ / "disk/run"), 40);
  for (int64_t step = 1; step <= 4; ++step) fs::remove_all(checkpoint_of(folder_ / "disk/run", step));
  trained(2, job + "--resume auto --checkpoint.every 0");
  EXPECT_EQ(json_at(folder_ / "disk/run/summary.json", "/params_hash"),
            json_at(folder_ / "whole/summary.json", "/params_hash"));
  EXPECT_EQ(logged_steps(folder_ / "disk/run", "train"), logged_steps(folder_ / "whole", "train"));
}

TEST_F(TrainerTest, ALimitOnFileSizesLosesCheckpointsAndSaysSo) {
  data("train.h5", 64);
  const Outcome o = run("bash -c 'ulimit -f 20; " + trainer(1) + " " + kGood + "--checkpoint.every 1'");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, ContainsRegex("warning: the checkpoint of step '1' was not written\n.*File too large"));
  EXPECT_THAT(o.text, HasSubstr("the run ended at step '3' without its last checkpoint"));
  EXPECT_FALSE(fs::exists(folder_ / "run" / ".lock"));
}

TEST_F(TrainerTest, AReaderThatGoesAwayEndsNoTraining) {
  data("train.h5", 64);
  for (int ranks : {1, 2}) {
    const std::string dir = "run" + std::to_string(ranks);
    run("bash -c '" + trainer(ranks) + " " + kGood + "--run.dir " + dir + " --train.steps 50 | head -1'");
    for (int tenths = 0; tenths < 300 && !fs::exists(folder_ / dir / "summary.json"); ++tenths)
      usleep(100'000);
    EXPECT_EQ(json_at(folder_ / dir / "summary.json", "/steps"), "50");
  }
}

const std::string kSlowDisk = "env LD_PRELOAD=" SLOW_FSYNC " ";

// Four fsyncs a checkpoint: more than the ranks' patience with each other.
TEST_F(TrainerTest, ASlowDiskHoldsUpNoOtherRankForTooLong) {
  data("train.h5", 64);
  const Outcome o =
      run(kSlowDisk + trainer(2) + " " + kGood + "--checkpoint.every 1 --train.steps 2 --parallel.timeout 2");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(newest_step(folder_ / "run"), 2);
  EXPECT_TRUE(fs::exists(checkpoint_of(folder_ / "run", 1)));
}

TEST_F(TrainerTest, ASignalDuringSetUpStopsBeforeTheFirstStep) {
  data("train.h5", 64);
  for (int ranks : {1, 2}) {
    const std::string dir = "run" + std::to_string(ranks);
    Process process(folder_, kSlowDisk + trainer(ranks) + " " + kGood + "--run.dir " + dir);
    for (int tenths = 0; tenths < 300 && !fs::exists(folder_ / dir / ".probe"); ++tenths) usleep(100'000);
    process.signal(SIGUSR1);
    const Outcome o = process.wait();
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_THAT(o.text, HasSubstr("stopped on request (USR1) at step 0;"));
    trained(1, kGood + "--resume auto --run.dir " + dir);
    EXPECT_EQ(json_at(folder_ / dir / "summary.json", "/steps"), "3");
  }
}

}  // namespace
}  // namespace lockstep::e2e
