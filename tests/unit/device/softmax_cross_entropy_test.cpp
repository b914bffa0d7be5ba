// What the goldens of PyTorch do not say: the metrics, and samples that weigh nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "operator_bench.h"

namespace lockstep::device::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kClasses = 6;

struct Result {
  ShardMetrics metrics;
  std::vector<float> gradient;  // [N, kClasses]
};

/// `logits` [N, kClasses]; labels and weights [N], weights may be empty.
Result run(const std::vector<float>& logits, const std::vector<int32_t>& labels,
           const std::vector<float>& weights, const nn::SoftmaxCrossEntropy& op = {}) {
  const auto n = static_cast<int64_t>(labels.size());
  nn::Graph graph(n);
  const nn::ValueId x = graph.relu(graph.input({kClasses, 1, 1}));
  graph.softmax_cross_entropy(graph.flatten(x), op);
  OperatorBench bench(graph, {x}, Mode::train, true);
  bench.set(x, logits);
  const nn::Batch batch{n, nullptr, labels.data(), nullptr, weights.empty() ? nullptr : weights.data()};
  bench.forward(batch, {});
  bench.backward(batch, {});
  return {bench.store().metrics(bench.store().statistics()), bench.gradient(x)};
}

TEST(SoftmaxCrossEntropy, CountsTheLabelAmongTheLargestLogits) {
  // First, second, fifth, sixth.
  const Result r = run({9, 1, 2, 3, 4, 5,  //
                        9, 1, 2, 3, 4, 5,  //
                        9, 1, 2, 3, 4, 5,  //
                        9, 1, 2, 3, 4, 5},
                       {0, 5, 2, 1}, {});
  EXPECT_EQ(r.metrics.samples, 4);
  EXPECT_EQ(r.metrics.weight_sum, 4);
  EXPECT_EQ(r.metrics.top1, 1);
  EXPECT_EQ(r.metrics.top5, 3);
}

TEST(SoftmaxCrossEntropy, ASampleOfWeightTwoIsStillOneSample) {
  const Result r = run({9, 1, 2, 3, 4, 5}, {0}, {2});
  EXPECT_EQ(r.metrics.weight_sum, 2);
  EXPECT_EQ(r.metrics.samples, 1);
  EXPECT_EQ(r.metrics.top1, 1);
}

/// The second of three samples, which would be right, weighs nothing: as if it were not there.
void expect_absent(const Result& r, const Result& without) {
  EXPECT_EQ(r.metrics.loss_sum, without.metrics.loss_sum);
  EXPECT_EQ(r.metrics.weight_sum, without.metrics.weight_sum);
  EXPECT_EQ(r.metrics.samples, without.metrics.samples);
  EXPECT_EQ(r.metrics.top1, without.metrics.top1);
  EXPECT_EQ(r.metrics.top5, without.metrics.top5);
  for (int64_t c = 0; c < kClasses; ++c) {
    EXPECT_EQ(r.gradient[c], without.gradient[c]);
    EXPECT_EQ(r.gradient[kClasses + c], 0) << c;
    EXPECT_EQ(r.gradient[2 * kClasses + c], without.gradient[kClasses + c]);
  }
}

TEST(SoftmaxCrossEntropy, ASampleThatWeighsNothingIsAsIfAbsent) {
  const std::vector<float> first{9, 1, 2, 3, 4, 5}, last{0, 1, 0.5f, 3, 0.25f, 5};
  const std::vector<std::vector<float>> middles{
      {0, 0, 0, 7, 0, 0}, {0, 0, 0, kInfinity, 0, 0}, {0, -kInfinity, 0, 7, 0, 0}, {kNan, 0, 0, 7, 0, 0}};
  for (const nn::SoftmaxCrossEntropy& op :
       {nn::SoftmaxCrossEntropy{}, nn::SoftmaxCrossEntropy{.label_smoothing = 0.1}}) {
    std::vector<float> two = first, three;
    two.insert(two.end(), last.begin(), last.end());
    const Result without = run(two, {0, 3}, {1, 0.5f}, op);
    for (const std::vector<float>& middle : middles) {
      three = first;
      three.insert(three.end(), middle.begin(), middle.end());
      three.insert(three.end(), last.begin(), last.end());
      expect_absent(run(three, {0, 3, 3}, {1, 0, 0.5f}, op), without);
      expect_absent(run(three, {0, op.ignore_index, 3}, {1, 1, 0.5f}, op), without);
    }
  }
}

TEST(SoftmaxCrossEntropy, AClassThatIsRuledOutCostsNothingWithoutSmoothing) {
  const Result r = run({9, 1, 2, 3, 4, -kInfinity}, {1}, {}), finite = run({9, 1, 2, 3, 4, -500}, {1}, {});
  EXPECT_EQ(r.metrics.loss_sum, finite.metrics.loss_sum);
  EXPECT_EQ(r.metrics.top5, 1);
  EXPECT_EQ(r.gradient, finite.gradient);
}

TEST(SoftmaxCrossEntropy, ANonFiniteSampleThatWeighsShows) {
  const Result r = run({9, 1, 2, 3, 4, 5, kNan, 0, 0, 7, 0, 0}, {0, 3}, {});
  EXPECT_TRUE(std::isnan(r.metrics.loss_sum));
  EXPECT_EQ(r.metrics.samples, 2);
  EXPECT_EQ(r.metrics.top1, 1);
  EXPECT_TRUE(std::isnan(r.gradient[kClasses]));
}

}  // namespace
}  // namespace lockstep::device::cpu
