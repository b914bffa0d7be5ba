#include "core/random.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

// philox4x32-10 of Random123's kat_vectors.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Philox{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsItsBlocksInOrder) {
  const RandomKey key{7, 3, 123456789012, Purpose::dropout, 42};
  RandomStream stream(key);
  for (uint32_t block = 0; block < 3; ++block)
    for (uint32_t word : random_block(key, block)) EXPECT_EQ(stream.next(), word);
}

TEST(RandomStream, DiffersInEveryPartOfTheKey) {
  const RandomKey key{7, 3, 5, Purpose::dropout, 42};
  std::array<RandomKey, 6> others;
  others.fill(key);
  others[0].seed = 8;
  others[1].time = 4;
  others[2].sample = 6;
  others[3].sample += uint64_t{1} << 40;
  others[4].purpose = Purpose::augment;
  others[5].op = 43;
  for (const RandomKey& other : others) EXPECT_NE(random_block(key, 0), random_block(other, 0));
}

TEST(RandomStream, UniformIsInRangeAndItsMeanIsOneHalf) {
  EXPECT_EQ(uniform(0), 0.0f);
  EXPECT_LT(uniform(0xffffffff), 1.0f);
  RandomStream stream({1});
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) sum += stream.next_uniform();
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

TEST(RandomStream, NextBelowReachesEveryValueAndNoMore) {
  RandomStream stream({1});
  std::array<int, 5> seen{};
  for (int i = 0; i < 1000; ++i) {
    uint32_t value = stream.next_below(5);
    ASSERT_LT(value, 5u);
    ++seen[value];
  }
  for (int count : seen) EXPECT_GT(count, 150);
  EXPECT_EQ(RandomStream({1}).next_below(1), 0u);
}

}  // namespace
}  // namespace lockstep
