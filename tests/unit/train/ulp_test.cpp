#include "train/ulp.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::train {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kLargest = std::numeric_limits<float>::max();

TEST(UlpDistance, IsZeroForTheSameBitsAlone) {
  for (float x : {0.0f, -0.0f, 1.0f, -1.5f, kSmallest, kLargest, kInfinity, -kInfinity})
    EXPECT_EQ(ulp_distance(x, x), 0u) << x;
  EXPECT_EQ(ulp_distance(0.0f, -0.0f), 1u);
}

TEST(UlpDistance, CountsFloatsBetween) {
  for (float x : {1.0f, -3.25f, 1e-30f, 65536.0f, kSmallest}) {
    const float next = std::nextafter(x, kInfinity);
    EXPECT_EQ(ulp_distance(x, next), 1u) << x;
    EXPECT_EQ(ulp_distance(next, x), 1u) << x;
    EXPECT_EQ(ulp_distance(x, std::nextafter(next, kInfinity)), 2u) << x;
  }
  // Twice as large: all the floats of a binade.
  EXPECT_EQ(ulp_distance(1.0f, 2.0f), 1u << 23);
  EXPECT_EQ(ulp_distance(std::nextafter(2.0f, 0.0f), 2.0f), 1u);
}

TEST(UlpDistance, GoesThroughBothZeros) {
  EXPECT_EQ(ulp_distance(kSmallest, 0.0f), 1u);
  EXPECT_EQ(ulp_distance(kSmallest, -0.0f), 2u);
  EXPECT_EQ(ulp_distance(kSmallest, -kSmallest), 3u);
  EXPECT_EQ(ulp_distance(1.0f, -1.0f), 2u * std::bit_cast<uint32_t>(1.0f) + 1);
}

TEST(UlpDistance, EndsAtTheInfinities) {
  EXPECT_EQ(ulp_distance(kLargest, kInfinity), 1u);
  EXPECT_EQ(ulp_distance(-kInfinity, kInfinity), 2u * 0x7f800000u + 1);
}

TEST(UlpDistance, OfNanIsInfiniteButFromItself) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float other = std::bit_cast<float>(std::bit_cast<uint32_t>(nan) + 1);
  EXPECT_EQ(ulp_distance(nan, nan), 0u);
  EXPECT_EQ(ulp_distance(nan, other), kInfinitelyFar);
  EXPECT_EQ(ulp_distance(nan, 1.0f), kInfinitelyFar);
  EXPECT_EQ(ulp_distance(kInfinity, nan), kInfinitelyFar);
  EXPECT_EQ(text_of_ulp(kInfinitelyFar), "NaN");
}

TEST(FarthestPair, IsTheFirstOfTheLargestDistance) {
  const std::vector<float> a = {1, 2, 3, 4};
  std::vector<float> b = a;
  EXPECT_EQ(farthest_pair(a, b).ulp, 0u);
  b[1] = std::nextafter(b[1], 9.0f);
  b[2] = b[3] = 3.5f;
  EXPECT_EQ(farthest_pair(a, b).index, 2u);
  EXPECT_EQ(farthest_pair(a, b).ulp, 1u << 21);
  EXPECT_EQ(farthest_pair({}, {}).ulp, 0u);
}

}  // namespace
}  // namespace lockstep::train
