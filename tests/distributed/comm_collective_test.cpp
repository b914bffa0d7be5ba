#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/collective.h"
#include "comm/half.h"
#include "comm/world.h"
#include "core/error.h"
#include "distributed/comm_compressed.h"
#include "distributed/mpi_test.h"
#include "distributed/tree_values.h"

namespace lockstep::comm {
namespace {

using test::same_bits;
using test::tree_sum;
using test::values_of;
using test::world;

// From nothing, over the small path (up to 16 KiB) and one chunk, to many rounds of every path.
const size_t kSizes[] = {0, 1, 2, 3, 7, 17, 1000, 4095, 4097, 65'537, 300'001};
constexpr size_t kLarge = size_t{1} << 20;

bool power_of_two() { return std::has_single_bit(static_cast<unsigned>(world().size())); }

struct Path {
  const char* name;
  CollectiveOptions options;
};

class EveryPath : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (GetParam().options.reduction == Reduction::exact && !power_of_two())
      GTEST_SKIP() << "for powers of two";
    collective_ = make_collective(world(), GetParam().options);
  }
  bool exact() const { return GetParam().options.reduction == Reduction::exact; }
  std::unique_ptr<Collective> collective_;
};

class ExactPath : public EveryPath {};

const Path kSharedMemory{"shared_memory", {.reduction = Reduction::exact, .timeout = 60}};
const Path kMessages{"messages", {.reduction = Reduction::exact, .timeout = 60, .shared_memory = false}};
// As on several hosts of two ranks each: both ways in one tree.
const Path kPairs{"pairs", {.reduction = Reduction::exact, .timeout = 60, .max_neighbours = 2}};
const Path kFast{"fast", {.reduction = Reduction::fast, .timeout = 60}};
std::string name(const testing::TestParamInfo<Path>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Collective, EveryPath, testing::Values(kSharedMemory, kMessages, kPairs, kFast),
                         name);
INSTANTIATE_TEST_SUITE_P(Collective, ExactPath, testing::Values(kSharedMemory, kMessages, kPairs), name);

TEST_P(ExactPath, AllReduceEqualsTheSequentialTreeBitForBit) {
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back(kLarge);
  for (size_t count : sizes) {
    auto x = values_of<float>(world().rank(), count, count);
    collective_->all_reduce(std::span<float>(x)).wait();
    EXPECT_TRUE(same_bits(x, tree_sum<float>(count, count, 0, world().size()))) << count;
  }
}

TEST_P(ExactPath, AllReduceOfDoublesToo) {
  for (size_t count : {size_t{1}, size_t{3}, size_t{5000}, size_t{100'001}}) {
    auto x = values_of<double>(world().rank(), count, count);
    collective_->all_reduce(std::span<double>(x)).wait();
    EXPECT_TRUE(same_bits(x, tree_sum<double>(count, count, 0, world().size()))) << count;
  }
}

TEST(Reference, AnotherOrderHasOtherBits) {
  if (world().size() < 4 || !power_of_two()) GTEST_SKIP() << "for 4 and 8 ranks";
  auto chain = values_of<float>(0, 1000, 1);
  for (int d = 1; d < world().size(); ++d) {
    auto next = values_of<float>(d, 1000, 1);
    for (size_t i = 0; i < chain.size(); ++i) chain[i] += next[i];
  }
  EXPECT_FALSE(same_bits(chain, tree_sum<float>(1000, 1, 0, world().size())));
}

TEST(Fast, AllReduceSumsWithinRoundingOnAnyNumberOfRanks) {
  auto collective = make_collective(world(), kFast.options);
  for (size_t count : kSizes) {
    auto x = values_of<float>(world().rank(), count, count);
    collective->all_reduce(std::span<float>(x)).wait();
    std::vector<double> sum(count), magnitude(count);
    for (int d = 0; d < world().size(); ++d) {
      auto one = values_of<float>(d, count, count);
      for (size_t i = 0; i < count; ++i) sum[i] += one[i], magnitude[i] += std::abs(one[i]);
    }
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(x[i], sum[i], magnitude[i] * 1e-6) << count << " at " << i;
  }
}

TEST_P(EveryPath, AllRanksEndWithTheSameBits) {
  auto x = values_of<float>(world().rank(), 10'000, 3);
  collective_->all_reduce(std::span<float>(x)).wait();
  auto all = world().all_gather({reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float)});
  for (const std::string& one : all) EXPECT_EQ(one, all[0]);
}

TEST_P(EveryPath, SlicesPartitionAnyCount) {
  for (size_t count : kSizes) {
    std::vector<Slice> slices;
    for (int d = 0; d < collective_->num_devices(); ++d)
      if (Slice s = collective_->slice(count, d); s.size() > 0) slices.push_back(s);
    std::sort(slices.begin(), slices.end(), [](Slice a, Slice b) { return a.begin < b.begin; });
    size_t at = 0;
    for (Slice s : slices) {
      EXPECT_EQ(s.begin, at) << count;
      at = s.end;
    }
    EXPECT_EQ(at, count);
  }
}

TEST_P(EveryPath, ReduceScatterThenAllGatherIsAllReduce) {
  for (size_t count : kSizes) {
    auto x = values_of<float>(world().rank(), count, count);
    auto y = x;
    collective_->all_reduce(std::span<float>(x)).wait();
    collective_->reduce_scatter(std::span<float>(y)).wait();
    Slice mine = collective_->slice(count, collective_->device());
    for (size_t i = 0; i < count; ++i)
      if (i < mine.begin || i >= mine.end) y[i] = -1;
    collective_->all_gather(std::span<float>(y)).wait();
    if (exact())
      EXPECT_TRUE(same_bits(x, y)) << count;
    else
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(x[i], y[i], 100) << count << " at " << i;  // values to 1e7
  }
}

TEST_P(EveryPath, ReduceGivesTheRootWhatAllReduceGives) {
  for (int root = 0; root < world().size(); ++root)
    for (size_t count : kSizes) {
      auto x = values_of<float>(world().rank(), count, count);
      auto y = x;
      collective_->all_reduce(std::span<float>(x)).wait();
      collective_->reduce(std::span<float>(y), root).wait();
      if (world().rank() != root) continue;
      if (exact())
        EXPECT_TRUE(same_bits(x, y)) << count;
      else
        for (size_t i = 0; i < count; ++i)
          ASSERT_NEAR(x[i], y[i], 100) << count << " at " << i;  // values to 1e7
    }
}

TEST_P(EveryPath, BroadcastGivesTheRootsValues) {
  for (int root = 0; root < world().size(); ++root)
    for (size_t count : kSizes) {
      auto x = values_of<float>(world().rank(), count, 9);
      collective_->broadcast(x, root).wait();
      EXPECT_TRUE(same_bits(x, values_of<float>(root, count, 9))) << count;
    }
}

TEST_P(EveryPath, NanAndInfinityReachEveryRank) {
  std::vector<float> x(5000, 1.0f);
  if (world().rank() == world().size() - 1) {
    x[17] = std::numeric_limits<float>::quiet_NaN();
    x[4999] = std::numeric_limits<float>::infinity();
  }
  collective_->all_reduce(std::span<float>(x)).wait();
  EXPECT_TRUE(std::isnan(x[17]));
  EXPECT_TRUE(std::isinf(x[4999]));
  EXPECT_EQ(x[0], static_cast<float>(world().size()));
}

// More operations than the ring holds, on overlapping buffers: only submission order gives these numbers.
TEST_P(EveryPath, ManyInFlightCompleteInOrder) {
  constexpr int kOperations = 1500;
  const float d = static_cast<float>(world().size());
  std::vector<float> x(64, 0.0f), y(kOperations, 1.0f);
  std::vector<Handle> handles;
  if (world().rank() == 0) x[0] = 1;
  for (int i = 0; i < kOperations; ++i) {
    handles.push_back(i % 10 == 9 ? collective_->broadcast(x, 0)
                                  : collective_->all_reduce(std::span<float>(y).subspan(i)));
    if (i % 100 == 0) handles.push_back(collective_->barrier());
  }
  handles.back().wait();
  for (const Handle& h : handles) EXPECT_TRUE(h.done());
  EXPECT_EQ(y[0], d);
  EXPECT_EQ(y[1], d * d);
  EXPECT_EQ(x[0], 1.0f);
}

TEST_P(EveryPath, NothingWorksAfterAbort) {
  std::vector<float> x(100);
  collective_->all_reduce(std::span<float>(x)).wait();
  collective_->barrier().wait();
  collective_->abort();
  EXPECT_THROW(collective_->all_reduce(std::span<float>(x)).wait(), ClusterError);
  world().barrier();
}

TEST(Exact, OtherThanPowersOfTwoAreRefusedWithTheSizesThatWork) {
  if (power_of_two()) GTEST_SKIP() << "for 3 ranks";
  try {
    make_collective(world(), {.reduction = Reduction::exact});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.headline(), testing::HasSubstr("'3' devices"));
    EXPECT_THAT(e.why(), testing::HasSubstr("1, 2, 4, 8"));
    EXPECT_THAT(e.todo(), testing::HasSubstr("'2' or '4' devices"));
  }
}

class Half : public testing::TestWithParam<Dtype> {
 protected:
  uint16_t to(float x) const {
    uint16_t h = 0;
    to_half(GetParam(), &h, &x, 1);
    return h;
  }
  /// The value of a positive half by its definition; of infinity, where the next number would lie.
  double value(uint16_t h) const {
    const int bits = GetParam() == Dtype::f16 ? 10 : 7, bias = GetParam() == Dtype::f16 ? 15 : 127;
    const int exponent = h >> bits, mantissa = h & ((1 << bits) - 1);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias - bits)
                         : std::ldexp(mantissa + (1 << bits), exponent - bias - bits);
  }
  uint16_t infinity() const { return GetParam() == Dtype::f16 ? 0x7c00 : 0x7f80; }
  uint16_t nan() const { return GetParam() == Dtype::f16 ? 0x7e00 : 0x7fc0; }
};

const auto kHalves = testing::Values(Dtype::bf16, Dtype::f16);
std::string half_name(const testing::TestParamInfo<Dtype>& info) { return name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Collective, Half, kHalves, half_name);

TEST_P(Half, EveryValueBecomesItsFloatAndComesBack) {
  std::vector<uint16_t> halves(65536), back(65536);
  for (size_t h = 0; h < halves.size(); ++h) halves[h] = static_cast<uint16_t>(h);
  std::vector<float> floats(65536);
  from_half(GetParam(), floats.data(), halves.data(), halves.size());
  to_half(GetParam(), back.data(), floats.data(), floats.size());
  for (uint32_t h = 0; h < 65536; ++h) {
    const uint16_t magnitude = h & 0x7fff;
    ASSERT_EQ(std::signbit(floats[h]), h >= 0x8000) << h;
    if (magnitude > infinity()) {
      ASSERT_TRUE(std::isnan(floats[h])) << h;
      ASSERT_EQ(back[h], nan()) << h;
    } else {
      if (magnitude == infinity())
        ASSERT_TRUE(std::isinf(floats[h]));
      else
        ASSERT_EQ(std::abs(floats[h]), value(magnitude)) << h;
      ASSERT_EQ(back[h], h);
    }
  }
}

TEST_P(Half, RoundsToTheNearestAndHalfwayToEven) {
  for (uint16_t h = 0; h < infinity(); ++h) {
    const auto middle = static_cast<float>((value(h) + value(h + 1)) / 2);
    const uint16_t above = h + 1, even = h % 2 == 0 ? h : above;
    ASSERT_EQ(to(middle), even) << h;
    ASSERT_EQ(to(std::nextafter(middle, 0.0f)), h) << h;
    ASSERT_EQ(to(std::nextafter(middle, std::numeric_limits<float>::infinity())), above) << h;
    ASSERT_EQ(to(-middle), even | 0x8000) << h;
  }
  EXPECT_EQ(to(std::numeric_limits<float>::max()), infinity());
  EXPECT_EQ(to(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(to(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(to(std::bit_cast<float>(0x7f800001)), nan());
  EXPECT_EQ(to(std::bit_cast<float>(0xffffffff)), nan());
}

// In vectors and at their ends as one by one.
TEST_P(Half, AnyCountIsConvertedAlike) {
  const std::vector<float> x = test::values_in(GetParam(), 0, 100, 5);
  for (size_t count = 0; count < x.size(); ++count) {
    std::vector<uint16_t> halves(x.size(), 0x1234);
    std::vector<float> back(x.size(), -7);
    to_half(GetParam(), halves.data(), x.data(), count);
    from_half(GetParam(), back.data(), halves.data(), count);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(halves[i], i < count ? to(x[i]) : 0x1234);
      ASSERT_EQ(back[i], i < count ? test::rounded(GetParam(), {x[i]})[0] : -7);
    }
  }
}

class Compressed : public testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    collective_ =
        make_collective(world(), {.reduction = Reduction::fast, .timeout = 60, .compress = GetParam()});
  }
  std::vector<float> reduced(std::vector<float> x) {
    collective_->all_reduce(std::span<float>(x), GetParam()).wait();
    return x;
  }
  /// All ranks' values.
  std::vector<std::vector<float>> all_values(size_t count, uint64_t seed) const {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < world().size(); ++r) all.push_back(test::values_in(GetParam(), r, count, seed));
    return all;
  }
  std::unique_ptr<Collective> collective_;
};
INSTANTIATE_TEST_SUITE_P(Collective, Compressed, kHalves, half_name);

TEST_P(Compressed, AllReduceEqualsTheSerialReferenceBitForBit) {
  // The last: more whole chunks than travel at once, then one of fewer elements than the most ranks.
  for (size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{17}, size_t{1000},
                       size_t{65'537}, kLarge + 5}) {
    const auto all = all_values(count, count);
    EXPECT_TRUE(same_bits(reduced(all[world().rank()]), test::compressed_sum(GetParam(), all, 1))) << count;
  }
}

TEST_P(Compressed, NanAndInfinityReachEveryRank) {
  std::vector<float> x(5000, 1.0f);
  const bool last = world().rank() == world().size() - 1;
  if (last) {
    x[17] = std::bit_cast<float>(0x7f800001);  // rounding must not make an infinity of it
    x[4998] = -std::numeric_limits<float>::infinity();
  }
  if (last || world().rank() == 0) x[4999] = (last ? -1 : 1) * std::numeric_limits<float>::infinity();
  x = reduced(x);
  EXPECT_TRUE(std::isnan(x[17]));
  EXPECT_EQ(x[4998], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(std::isnan(x[4999]), world().size() > 1);
  EXPECT_EQ(x[0], static_cast<float>(world().size()));
}

TEST_P(Compressed, WhatHalfPrecisionCannotHoldBecomesInfinity) {
  if (world().size() == 1) GTEST_SKIP() << "for several ranks";
  const float largest = GetParam() == Dtype::f16 ? 65504.0f : 0x1.fep127f;
  // One contribution beyond the largest; and a sum of contributions that are not.
  std::vector<float> x = {world().rank() == 0 ? 1.01f * largest : 0, world().rank() < 2 ? largest : 0,
                          world().rank() == 0 ? largest : 0};
  x = reduced(x);
  EXPECT_EQ(x[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(x[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(x[2], largest);
}

TEST_P(Compressed, OtherOperationsOfTheSameCollectiveAreNot) {
  constexpr int kOperations = 100;
  // Not representable in half precision, but exactly in what crosses uncompressed.
  const float odd = 1 + 0x1p-20f, d = static_cast<float>(world().size());
  std::vector<std::vector<float>> x(kOperations), y(kOperations);
  std::vector<double> z(kOperations, odd);
  Handle last;
  for (int i = 0; i < kOperations; ++i) {
    x[i].assign(1 + 997 * i, odd);
    y[i].assign(1 + 31 * i, odd);
    collective_->all_reduce(std::span<float>(x[i]), GetParam());
    collective_->all_reduce(std::span<float>(y[i]));
    last = collective_->all_reduce(std::span<double>(z).subspan(i, 1));
  }
  last.wait();
  for (int i = 0; i < kOperations; ++i) {
    EXPECT_EQ(x[i], std::vector<float>(x[i].size(), world().size() == 1 ? odd : d));
    EXPECT_EQ(y[i], std::vector<float>(y[i].size(), d * odd));
    EXPECT_EQ(z[i], static_cast<double>(d) * odd);
  }
}

TEST_P(Compressed, NothingWorksAfterAbort) {
  reduced(std::vector<float>(100));
  collective_->barrier().wait();
  collective_->abort();
  EXPECT_THROW(reduced(std::vector<float>(100)), ClusterError);
  world().barrier();
}

TEST_P(Compressed, MustBePermitted) {
  if (world().size() == 1) GTEST_SKIP() << "one rank rounds nothing";
  for (Reduction reduction : {Reduction::fast, Reduction::exact}) {
    if (reduction == Reduction::exact && !power_of_two()) continue;
    auto collective = make_collective(world(), {.reduction = reduction});
    std::vector<float> x(10);
    EXPECT_THROW(collective->all_reduce(std::span<float>(x), GetParam()).wait(), std::logic_error);
  }
}

TEST_P(Compressed, ExactRefusesItOnAnyNumberOfRanks) {
  if (!power_of_two()) GTEST_SKIP() << "for powers of two";
  try {
    make_collective(world(), {.reduction = Reduction::exact, .compress = GetParam()});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.headline(), testing::HasSubstr(GetParam() == Dtype::f16 ? "'fp16'" : "'bf16'"));
    EXPECT_THAT(e.todo(), testing::HasSubstr("--reduction fast"));
    EXPECT_THAT(e.todo(), testing::HasSubstr("--parallel.compress off"));
  }
}

}  // namespace
}  // namespace lockstep::comm
