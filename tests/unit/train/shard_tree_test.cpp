#include "train/shard_tree.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/cpu_device.h"

namespace lockstep::train {
namespace {

std::vector<std::vector<float>> shards(int count) {
  std::vector<std::vector<float>> all(count, std::vector<float>(1000));
  for (int s = 0; s < count; ++s)
    for (int i = 0; i < 1000; ++i)
      all[s][i] = std::exp(static_cast<float>(std::sin(s * 13.7 + i * 0.71) * 9));
  return all;
}

// The definition: halves of an even number, summed apart; an odd one in a row.
std::vector<float> tree(const std::vector<std::vector<float>>& s, int begin, int end) {
  const auto add = [](std::vector<float> a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  const int count = end - begin;
  if (count % 2 == 0) return add(tree(s, begin, begin + count / 2), tree(s, begin + count / 2, end));
  std::vector<float> sum = s[begin];
  for (int i = begin + 1; i < end; ++i) sum = add(sum, s[i]);
  return sum;
}

// The part [first, first + part) of all shards.
std::vector<float> counter(const std::vector<std::vector<float>>& all, int first, int part) {
  const std::vector<std::vector<float>> s(all.begin() + first, all.begin() + first + part);
  auto device = device::make_cpu_device(1);
  ShardTree t(*device, 1000, part, static_cast<int64_t>(all.size()));
  for (int round = 0; round < 2; ++round) {  // begin() forgets the step before
    auto values = s;
    t.begin();
    for (size_t i = 0; i + 1 < s.size(); ++i) t.add(values[i]);
    t.finish(values.back(), 0, 400);  // by bucket
    t.finish(values.back(), 400, 1000);
    if (round == 1) return values.back();
  }
  return {};
}

TEST(ShardTree, SumsInTheOneTree) {
  for (int count : {1, 2, 3, 4, 6, 7, 8, 12, 16, 20, 32, 40})
    EXPECT_EQ(counter(shards(count), 0, count), tree(shards(count), 0, count)) << count;
}

// The sums of devices that share a batch out, added by pairs, are that of one device.
TEST(ShardTree, PartsAreBranchesOfTheWhole) {
  for (int count : {8, 12, 24, 40})
    for (int devices = 2; count % devices == 0; devices *= 2) {
      std::vector<std::vector<float>> parts;
      for (int d = 0; d < devices; ++d)
        parts.push_back(counter(shards(count), d * count / devices, count / devices));
      EXPECT_EQ(tree(parts, 0, devices), counter(shards(count), 0, count)) << count << " on " << devices;
    }
}

TEST(ShardTree, SumsAnyPartForFastReduction) {
  for (int devices : {1, 3, 5})
    for (int count : {15, 30, 45}) {
      const int part = count / devices;
      const auto all = shards(count);
      const std::vector<float> sum = counter(all, 0, part);
      for (int i = 0; i < 1000; ++i) {
        double expected = 0;
        for (int s = 0; s < part; ++s) expected += all[s][i];
        EXPECT_NEAR(sum[i], expected, 1e-5 * expected);
      }
    }
}

}  // namespace
}  // namespace lockstep::train
