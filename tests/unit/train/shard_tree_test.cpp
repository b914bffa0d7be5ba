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

// The definition: halves of a power of two, summed apart.
std::vector<float> tree(const std::vector<std::vector<float>>& s, int begin, int end) {
  if (end - begin == 1) return s[begin];
  std::vector<float> a = tree(s, begin, (begin + end) / 2), b = tree(s, (begin + end) / 2, end);
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

std::vector<float> counter(std::vector<std::vector<float>> s) {
  auto device = device::make_cpu_device(1);
  ShardTree t(*device, 1000, static_cast<int64_t>(s.size()));
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
  for (int count : {1, 2, 4, 8, 16, 32})
    EXPECT_EQ(counter(shards(count)), tree(shards(count), 0, count)) << count;
}

TEST(ShardTree, SumsAnyNumberForFastReduction) {
  for (int count : {3, 5, 6, 7, 13}) {
    const std::vector<float> sum = counter(shards(count));
    const auto all = shards(count);
    for (int i = 0; i < 1000; ++i) {
      double expected = 0;
      for (const auto& s : all) expected += s[i];
      EXPECT_NEAR(sum[i], expected, 1e-5 * expected);
    }
  }
}

}  // namespace
}  // namespace lockstep::train
