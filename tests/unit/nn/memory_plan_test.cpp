#include "nn/memory_plan.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep::nn {
namespace {

TEST(MemoryPlan, WhatIsAliveTogetherNeverOverlaps) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random({.seed = seed});
    std::vector<Lifetime> lifetimes;
    for (uint32_t i = 0, n = 1 + random.next_below(60); i < n; ++i) {
      const int first = static_cast<int>(random.next_below(40));
      lifetimes.push_back(
          {1 + random.next_below(5000), first, first + static_cast<int>(random.next_below(15))});
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    for (size_t a = 0; a < lifetimes.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 64, 0u);
      EXPECT_LE(plan.offsets[a] + lifetimes[a].bytes, plan.bytes);
      for (size_t b = 0; b < a; ++b) {
        if (lifetimes[a].last < lifetimes[b].first || lifetimes[b].last < lifetimes[a].first) continue;
        EXPECT_TRUE(plan.offsets[a] + lifetimes[a].bytes <= plan.offsets[b] ||
                    plan.offsets[b] + lifetimes[b].bytes <= plan.offsets[a]);
      }
    }
    EXPECT_GE(plan.bytes, plan.lower_bound);
    EXPECT_LE(plan.bytes, 2 * plan.lower_bound);
  }
}

TEST(MemoryPlan, ReusesWhatHasDied) {
  const MemoryPlan plan = plan_memory({{1024, 0, 1}, {1024, 2, 3}, {1024, 1, 2}});
  EXPECT_EQ(plan.bytes, 2048u);
  EXPECT_EQ(plan.lower_bound, 2048u);
}

}  // namespace
}  // namespace lockstep::nn
