#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/collective.h"
#include "comm/world.h"
#include "core/error.h"
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

}  // namespace
}  // namespace lockstep::comm
