// A rank that dies or hangs ends the job, with a message that names it and no process left.
#include <signal.h>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::ContainsRegex;

class Failure : public TrainerTest {
 protected:
  Failure() { data("train.h5", 203); }
  const std::string job_ = kGood + "--train.steps 1000000 --schedule.name constant --log.every 1 ";
};

TEST_F(Failure, AKilledRankEndsTheJobWithoutOrphans) {
  for (size_t victim : {0, 3}) {
    Process process(folder_, trainer(4) + " " + job_ + "--run.dir killed" + std::to_string(victim));
    ASSERT_TRUE(process.prints("\nstep       3/")) << process.text();
    const std::vector<Rank> ranks = ranks_in(folder_);
    ASSERT_EQ(ranks.size(), 4u);
    kill(ranks[victim].pid, SIGKILL);
    const Outcome o = process.wait(30);
    EXPECT_NE(o.code, 0) << o.text;
    EXPECT_NE(o.code, 124) << "the job went on without rank " << victim;
    EXPECT_EQ(ranks_in(folder_).size(), 0u);
  }
}

TEST_F(Failure, AKilledLauncherLeavesNoOrphans) {
  Process process(folder_, trainer(2) + " " + job_);
  ASSERT_TRUE(process.prints("\nstep       3/")) << process.text();
  process.signal(SIGKILL);
  process.wait();
  for (int tenths = 0; tenths < 300 && !ranks_in(folder_).empty(); ++tenths) usleep(100'000);
  EXPECT_EQ(ranks_in(folder_).size(), 0u);
}

TEST_F(Failure, AStoppedRankIsNamedPastTheTimeout) {
  for (size_t victim : {1, 0}) {
    Process process(folder_, trainer(3) + " " + job_ +
                                 "--reduction fast --batch.global 24 --parallel.timeout 2 --run.dir stopped" +
                                 std::to_string(victim));
    ASSERT_TRUE(process.prints("\nstep       3/")) << process.text();
    const std::vector<Rank> ranks = ranks_in(folder_);
    ASSERT_EQ(ranks.size(), 3u);
    kill(ranks[victim].pid, SIGSTOP);
    const Outcome o = process.wait(40);
    EXPECT_EQ(o.code, 4) << o.text;
    EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
    EXPECT_THAT(o.text, ContainsRegex("rank '" + std::to_string(victim) +
                                      "' on '[^']+' does not answer: dead, stopped or cut off"));
    EXPECT_EQ(ranks_in(folder_).size(), 0u);
  }
}

}  // namespace
}  // namespace lockstep::e2e
