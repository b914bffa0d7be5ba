// Collectives of several replicas in each rank: threads first, then ranks, still the one tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "comm/collective.h"
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

const size_t kSizes[] = {0, 1, 3, 17, 1000, 4097, 65'537, 300'001};

class Replicas : public testing::TestWithParam<std::tuple<int, Reduction>> {
 protected:
  void SetUp() override {
    const auto [replicas, reduction] = GetParam();
    devices_ = replicas * world().size();
    exact_ = reduction == Reduction::exact;
    if (exact_ && !std::has_single_bit(static_cast<unsigned>(devices_))) GTEST_SKIP() << "for powers of two";
    // Permitted where it can be; asked for in one test.
    collectives_ = make_collectives(
        world(), replicas,
        {.reduction = reduction, .timeout = 60, .compress = exact_ ? Dtype::f32 : Dtype::bf16});
    ASSERT_EQ(collectives_.size(), static_cast<size_t>(replicas));
  }
  /// On a thread for each replica.
  void each(const std::function<void(Collective&)>& piece) {
    std::vector<std::thread> threads;
    for (auto& c : collectives_) threads.emplace_back([&] { piece(*c); });
    for (std::thread& t : threads) t.join();
  }
  int devices_ = 0;
  bool exact_ = false;
  std::vector<std::unique_ptr<Collective>> collectives_;
};

INSTANTIATE_TEST_SUITE_P(Collective, Replicas,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(Reduction::exact, Reduction::fast)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Reduction::exact ? "exact" : "fast");
                         });

TEST_P(Replicas, AreDevicesInTheOrderOfRanks) {
  for (size_t i = 0; i < collectives_.size(); ++i) {
    EXPECT_EQ(collectives_[i]->device(), static_cast<int>(world().rank() * collectives_.size() + i));
    EXPECT_EQ(collectives_[i]->num_devices(), devices_);
  }
}

TEST_P(Replicas, AllReduceIsTheTreeOverAllDevices) {
  for (size_t count : kSizes) {
    const std::vector<float> expected = tree_sum<float>(count, count, 0, devices_);
    std::vector<std::vector<float>> results(collectives_.size());
    each([&](Collective& c) {
      auto x = values_of<float>(c.device(), count, count);
      c.all_reduce(std::span<float>(x)).wait();
      results[c.device() % collectives_.size()] = x;
    });
    for (const std::vector<float>& x : results) {
      EXPECT_TRUE(same_bits(x, results[0])) << count;
      if (exact_) {
        EXPECT_TRUE(same_bits(x, expected)) << count;
      } else {
        for (size_t i = 0; i < count; ++i) ASSERT_NEAR(x[i], expected[i], 8);  // of terms up to 2^22
      }
    }
  }
}

// Within a rank fp32 is summed; only what leaves it is rounded.
TEST_P(Replicas, CompressedAllReduceRoundsBetweenRanksOnly) {
  if (exact_) GTEST_SKIP() << "exact compresses nothing";
  for (Dtype half : {Dtype::bf16, Dtype::f16})
    for (size_t count : {0, 1, 3, 17, 4097, 65'537}) {
      std::vector<std::vector<float>> all;
      for (int d = 0; d < devices_; ++d) all.push_back(test::values_in(half, d, count, count));
      const std::vector<float> expected = test::compressed_sum(half, all, collectives_.size());
      each([&](Collective& c) {
        auto x = all[c.device()];
        c.all_reduce(std::span<float>(x), half).wait();
        EXPECT_TRUE(same_bits(x, expected)) << name_of(half) << ' ' << count;
      });
    }
}

TEST_P(Replicas, ManyOperationsInFlightStayApart) {
  constexpr int kOperations = 40;
  each([&](Collective& c) {
    std::vector<std::vector<double>> x;
    std::vector<Handle> handles;
    for (int i = 0; i < kOperations; ++i) x.push_back(std::vector<double>(1 + 37 * i, c.device() + i));
    for (auto& v : x) handles.push_back(c.all_reduce(std::span<double>(v)));
    for (int i = 0; i < kOperations; ++i) {
      handles[i].wait();
      const double sum = devices_ * (devices_ - 1) / 2.0 + static_cast<double>(i) * devices_;
      EXPECT_EQ(x[i], std::vector<double>(x[i].size(), sum));
    }
  });
}

TEST_P(Replicas, ScatterGatherBroadcastAndBarrierCoverEveryDevice) {
  for (size_t count : kSizes) {
    const std::vector<float> expected = tree_sum<float>(count, count, 0, devices_);
    each([&](Collective& c) {
      size_t covered = 0;
      for (int d = 0; d < devices_; ++d) covered += c.slice(count, d).size();
      EXPECT_EQ(covered, count);
      auto x = values_of<float>(c.device(), count, count);
      c.reduce_scatter(std::span<float>(x)).wait();
      const Slice mine = c.slice(count, c.device());
      for (size_t i = mine.begin; exact_ && i < mine.end; ++i) EXPECT_EQ(x[i], expected[i]);
      for (size_t i = 0; i < count; ++i)
        if (i < mine.begin || i >= mine.end) x[i] = -1;
      c.all_gather(std::span<float>(x)).wait();
      EXPECT_TRUE(!exact_ || same_bits(x, expected)) << count;
      for (int root : {0, devices_ - 1}) {
        auto y = values_of<float>(c.device(), count, 7);
        c.broadcast(std::span<float>(y), root).wait();
        EXPECT_TRUE(same_bits(y, values_of<float>(root, count, 7))) << count << " from " << root;
        auto z = values_of<float>(c.device(), count, count);
        c.reduce(std::span<float>(z), root).wait();
        EXPECT_TRUE(!exact_ || c.device() != root || same_bits(z, expected)) << count << " to " << root;
      }
      c.barrier().wait();
    });
  }
}

TEST_P(Replicas, OneThatGivesUpEndsTheOthers) {
  if (world().size() > 1) GTEST_SKIP() << "other ranks wait for their timeout";
  std::atomic<int> ended = 0;
  each([&](Collective& c) {
    if (c.device() == 1) return c.abort();
    std::vector<float> x(1000);
    try {
      c.all_reduce(std::span<float>(x)).wait();
    } catch (const ClusterError&) {
      ++ended;
    }
  });
  EXPECT_EQ(ended, devices_ - 1);
}

}  // namespace
}  // namespace lockstep::comm
