#include "train/grad_scaler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace lockstep::train {
namespace {

TEST(GradScaler, DefaultsAreTorchs) {
  GradScaler scaler{{}};
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scaler.growth_tracker(), 1999);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072);
  EXPECT_EQ(scaler.growth_tracker(), 0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
}

// The trace of tests/golden/make_grad_scaler.py.
TEST(GradScaler, FollowsTorchStepByStep) {
  std::ifstream trace(LOCKSTEP_SOURCE_DIR "/tests/golden/grad_scaler.txt");
  GradScaler scaler{{}};
  int blocks = 0, steps = 0;
  for (std::string word; trace >> word; ++steps) {
    if (word == "options") {
      GradScalerOptions options;
      trace >> options.init_scale >> options.growth_factor >> options.backoff_factor >>
          options.growth_interval >> word;
      scaler = GradScaler(options);
      ++blocks;
    }
    float scale = 0;
    int64_t tracker = 0;
    trace >> scale >> tracker;
    ASSERT_TRUE(trace) << "block " << blocks << ", step " << steps;
    scaler.update(word == "1");
    ASSERT_EQ(scaler.scale(), scale) << "block " << blocks << ", step " << steps;
    ASSERT_EQ(scaler.growth_tracker(), tracker) << "block " << blocks << ", step " << steps;
    ASSERT_FALSE(scaler.exhausted());
  }
  EXPECT_EQ(blocks, 4);
  EXPECT_EQ(steps, 119);
}

TEST(GradScaler, StaysAtOneAndIsExhaustedByOverflowThere) {
  GradScaler scaler{{.init_scale = 5, .growth_interval = 2}};
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2.5f);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.25f);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);  // not 0.625
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(scaler.exhausted());
  scaler.update(false);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2);
}

TEST(GradScaler, GoesOnFromACheckpointAsIfItHadNeverStopped) {
  const GradScalerOptions options{.growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3};
  GradScaler whole(options), first(options);
  auto found_inf = [](int step) { return step % 11 == 9; };
  for (int step = 0; step < 14; ++step) whole.update(found_inf(step)), first.update(found_inf(step));
  ASSERT_NE(first.growth_tracker(), 0);
  GradScaler second(options);
  second.restore(first.scale(), first.growth_tracker());
  for (int step = 14; step < 60; ++step) {
    whole.update(found_inf(step));
    second.update(found_inf(step));
    ASSERT_EQ(second.scale(), whole.scale()) << step;
    ASSERT_EQ(second.growth_tracker(), whole.growth_tracker()) << step;
  }
}

TEST(GradScaler, GrowsAtOnceWhenTheIntervalIsNowShorterThanTheRestoredCount) {
  GradScaler scaler{{.growth_interval = 10}};
  scaler.restore(8, 1500);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

}  // namespace
}  // namespace lockstep::train
