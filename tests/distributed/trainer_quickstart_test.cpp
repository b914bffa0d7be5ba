// `trainer` with no job at all, where nothing is packed; and what reaches a terminal.
#include <fstream>

#include "ordinary_user.h"

namespace lockstep::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

class Quickstart : public TrainerTest {
 protected:
  // A copy of the program does not see the checkout and its .cache.
  Quickstart() {
    fs::create_directory(folder_ / "bin");
    fs::copy(TRAINER, folder_ / "bin" / "trainer");
  }
  std::string copied(int ranks) const {
    return "env XDG_CACHE_HOME=" + (folder_ / "cache").string() + " " +
           (ranks == 1 ? "" : MPIEXEC " -np " + std::to_string(ranks) + " ") + "bin/trainer ";
  }
  const fs::path made_ = folder_ / "cache" / "lockstep" / "generated";
};

TEST_F(Quickstart, MakesItsDataOnceAndTrains) {
  const Outcome first = run(copied(2) + "--train.steps 3");
  EXPECT_EQ(first.code, 0) << first.text;
  const std::string line =
      "no job given: the built-in quickstart job on a generated image set in '" + made_.string() + "'\n";
  EXPECT_EQ(count(first.text, line), 1) << first.text;
  EXPECT_EQ(json_at(folder_ / "runs/quickstart-0001/summary.json", "/steps"), "3");
  EXPECT_EQ(json_at(folder_ / "runs/quickstart-0001/summary.json", "/job/batch.global"), "\"128\"");
  EXPECT_THAT(listing(), testing::IsSupersetOf(
                             {"cache/lockstep/generated/train.h5", "cache/lockstep/generated/test.h5"}));
  const auto written = fs::last_write_time(made_ / "train.h5");

  const Outcome second = run(copied(1) + "train --train.steps=3 --optim.lr 0.05");
  EXPECT_EQ(second.code, 0) << second.text;
  EXPECT_EQ(fs::last_write_time(made_ / "train.h5"), written);
  EXPECT_EQ(json_at(folder_ / "runs/quickstart-0002/summary.json", "/job/optim.lr"), "\"0.05\"");
}

TEST_F(Quickstart, ATypoIsRefusedBeforeAnyDataIsMade) {
  for (int ranks : {1, 2}) {
    const Outcome o = run(copied(ranks) + "--train.epoch 3");
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text, HasSubstr("did you mean 'train.epochs'?"));
    EXPECT_FALSE(fs::exists(folder_ / "cache"));
  }
}

TEST_F(Quickstart, DataOfTheUsersOwnIsNoQuickstart) {
  data("train.h5", 32);
  for (const char* given : {"--data.train train.h5 ", "--data.train=train.h5 "}) {
    const Outcome o = run(copied(1) + given + "--train.steps 1");
    EXPECT_EQ(o.code, 0) << o.text;
    EXPECT_THAT(o.text, Not(HasSubstr("no job given")));
  }
  EXPECT_EQ(run("env LOCKSTEP_DATA_TRAIN=train.h5 " + copied(1).substr(4) + "--train.steps 1").code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

// A copy of the program in a folder that looks like a checkout.
class Checkout : public OrdinaryUser {
 protected:
  Checkout() {
    fs::create_directories(top_ / "build");
    fs::create_directories(top_ / "jobs");
    fs::copy(TRAINER, top_ / "build" / "trainer");
    std::ofstream(top_ / "jobs" / "fashion_mnist.ini") << "";
  }
  std::string command(const fs::path& xdg) const {
    return as_user("env XDG_CACHE_HOME=" + xdg.string() + " checkout/build/trainer --train.steps 1 ");
  }
  const fs::path top_ = folder_ / "checkout", cache_ = folder_ / "cache";
};

TEST_F(Checkout, ItsOwnCacheIsUsedWhereItCanBeWritten) {
  const Outcome o = run(command(cache_));
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_TRUE(fs::exists(top_ / ".cache" / "generated" / "train.h5")) << o.text;
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(Checkout, TheUsersCacheIsUsedWhereItCannot) {
  permit("checkout", fs::perms::owner_read | fs::perms::owner_exec);
  Outcome o = run(command(cache_));
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_TRUE(fs::exists(cache_ / "lockstep" / "generated" / "train.h5")) << o.text;
  o = run(command("/proc/none"));
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("cannot make the cache folder '/proc/none/lockstep/generated'"));
  EXPECT_THAT(o.text, HasSubstr("set XDG_CACHE_HOME"));
}

TEST_F(Checkout, WhatIsPackedThereIsUsedAlsoWhereItCannotBeWritten) {
  fs::create_directories(top_ / ".cache" / "fashion_mnist");
  data("checkout/.cache/fashion_mnist/train.h5", 128);
  data("checkout/.cache/fashion_mnist/test.h5", 32);
  permit("checkout/.cache", fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome o = run(command(cache_));
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("quickstart job on Fashion-MNIST in '" + (top_ / ".cache").string()));
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(TrainerTest, ColourIsForTerminalsAlone) {
  data("train.h5", 32);
  const std::string job = "--data.train train.h5 --batch.micro 4 --train.steps 1 ";
  const std::string escape = "\033[";
  for (int ranks : {1, 2}) {
    const std::string run_dir = "--run.dir run" + std::to_string(ranks);
    EXPECT_THAT(trained(ranks, job + run_dir).text, Not(HasSubstr(escape))) << ranks << " ranks";
    EXPECT_THAT(trained(ranks, job + run_dir + "c --log.color always").text, HasSubstr(escape));
    const std::string evaluate = "evaluate --data.eval train.h5 --resume run1 ";
    EXPECT_THAT(trained(ranks, evaluate).text, Not(HasSubstr(escape))) << ranks << " ranks";
    EXPECT_THAT(trained(ranks, evaluate + "--log.color always").text, HasSubstr(escape));
  }
}

}  // namespace
}  // namespace lockstep::e2e
