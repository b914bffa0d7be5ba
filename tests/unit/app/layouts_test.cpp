#include "app/layouts.h"

#include <gtest/gtest.h>

#include "parse.h"

namespace lockstep::app {
namespace {

TEST(Layouts, TakeAsManyReplicasAsDivideTheShardsAndFitTheCores) {
  EXPECT_EQ(most_replicas(8, 1), 2);  // they take turns
  EXPECT_EQ(most_replicas(8, 3), 2);
  EXPECT_EQ(most_replicas(8, 4), 4);
  EXPECT_EQ(most_replicas(8, 64), 8);
  EXPECT_EQ(most_replicas(6, 64), 2);
  EXPECT_EQ(most_replicas(12, 64), 4);
  EXPECT_EQ(most_replicas(3, 64), 1);
  EXPECT_EQ(most_replicas(1, 64), 1);
}

class ShortJob : public JobTest {
 protected:
  Job limited(Words more) {
    const std::string job =
        file("a.ini", "[train]\nsteps = 500\nepochs = 7\nminutes = 3\n[data]\neval = none.h5\n");
    Words words{"verify", "--job", job, "--data.train", file("train.h5")};
    words.insert(words.end(), more.begin(), more.end());
    Invocation invocation = parse(words);
    limit_to_steps(invocation, 20);
    return invocation.job;
  }
};

TEST_F(ShortJob, TakesTheStepsOfTheCommandLineOnly) {
  EXPECT_EQ(limited({}).train.steps, 20);
  EXPECT_EQ(limited({"--train.steps", "5"}).train.steps, 5);
  EXPECT_EQ(limited({"--train.steps", "0"}).train.steps, 20);
}

TEST_F(ShortJob, HasNoOtherLimitAndNoEvaluation) {
  const Job job = limited({"--train.steps", "5"});
  EXPECT_EQ(job.train.epochs, 0);
  EXPECT_EQ(job.train.minutes, 0);
  EXPECT_EQ(job.data.eval, "");
}

TEST(FixedBatch, IsTheOneOfTheLaunchInEveryLayout) {
  Job job;
  const train::BatchPlan launch = fix_batch(job, 2);
  EXPECT_EQ(launch.global, 128);
  for (int devices : {1, 2, 4, 8}) {
    const train::BatchPlan plan = plan_batch(job, devices);
    EXPECT_EQ(plan.global, launch.global);
    EXPECT_EQ(plan.micro, launch.micro);
    EXPECT_EQ(plan.shards, launch.shards);
  }
}

}  // namespace
}  // namespace lockstep::app
