// Gradients of whole graphs against central differences of their loss, in graphs whose wiring no golden file
// covers: branches that join, values read three times, layouts that must be converted, linear layers in a
// row.
#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/cpu_device.h"

namespace lockstep::device {
namespace {

nn::Graph branches(int64_t n) {
  nn::Graph g(n);
  auto x = g.input({3, 8, 8});
  x = g.gelu(
      g.batch_norm("bn0", g.conv2d("c0", x, {.out_channels = 20, .kernel = {3, 3}, .padding = {1, 1}})));
  auto a = g.conv2d("a", x, {.out_channels = 20, .kernel = {3, 3}, .padding = {1, 1}, .groups = 5});
  auto b = g.avg_pool(x, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  auto sum = g.add(g.batch_norm("bn1", a), x);  // x is read four times
  auto y = g.concat({g.gelu(sum), b, x});
  y = g.gelu(g.add(y, g.conv2d("d", y, {.out_channels = 60, .kernel = {1, 1}})));
  y = g.flatten(g.avg_pool(y, {.kernel = {4, 4}, .stride = {4, 4}}));
  y = g.gelu(g.linear("l1", y, {24}));
  y = g.add(g.gelu(g.linear("l2", y, {24})),
            g.gelu(y));  // two would overwrite the one gradient that they share
  g.softmax_cross_entropy(g.linear("l3", y, {5}), {.label_smoothing = 0.1});
  return g;
}

nn::Graph fully_convolutional(int64_t n) {
  nn::Graph g(n);
  auto x = g.conv2d("c0", g.input({2, 6, 6}), {.out_channels = 12, .kernel = {3, 3}});
  x = g.gelu(g.batch_norm("bn", x));
  g.softmax_cross_entropy(
      g.flatten(g.global_avg_pool(g.conv2d("head", x, {.out_channels = 5, .kernel = {1, 1}}))));
  return g;
}

nn::Graph perceptron(int64_t n) {
  nn::Graph g(n);
  auto x = g.gelu(g.linear("l1", g.flatten(g.input({2, 6, 6})), {17}));
  g.softmax_cross_entropy(g.linear("l2", g.dropout(x, 0.25), {5}));
  return g;
}

class FiniteDifference : public testing::TestWithParam<nn::Graph (*)(int64_t)> {};

TEST_P(FiniteDifference, GradientsAreTheLosssSlopes) {
  constexpr int64_t kBatch = 3;
  const nn::Graph g = GetParam()(kBatch);
  auto device = make_cpu_device(2);
  auto store = device->make_store(g);
  auto program = device->compile(g, *store, Mode::train);
  store->initialize(7);
  store->refresh_copies();
  std::vector<float> images(g.shape(0).count());
  for (size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i * i % 1013)));
  const std::vector<int32_t> labels{1, 4, 2};
  const std::vector<uint64_t> rows{10, 11, 12};
  const std::vector<float> weights{1.0f, 0.5f, 2.0f};
  const nn::Batch batch{kBatch, images.data(), labels.data(), rows.data(), weights.data()};
  auto loss = [&] {
    store->refresh_copies();
    program->load(batch);
    program->forward({.seed = 3, .step = 5});
    return static_cast<double>(store->metrics(store->statistics()).loss_sum);
  };
  loss();
  program->backward([](Range) {});

  // Along the gradient's own direction within each parameter: float32 losses are too coarse for single
  // entries.
  for (const ParameterSlot& p : store->parameters()) {
    std::span<float> v = store->values().subspan(p.range.begin, p.range.size());
    std::span<float> d = store->gradients().subspan(p.range.begin, p.range.size());
    const double norm = std::sqrt(device->sum_of_squares(d));
    if (norm < 1e-5) continue;  // a bias in front of a batch norm
    const std::vector<float> before(v.begin(), v.end()), direction(d.begin(), d.end());
    auto moved = [&](double by) {
      for (size_t i = 0; i < v.size(); ++i) v[i] = before[i] + static_cast<float>(by * direction[i] / norm);
      return loss();
    };
    constexpr double h = 5e-3;
    const double slope = (moved(h) - moved(-h)) / (2 * h);
    moved(0);
    EXPECT_NEAR(slope, norm, 0.01 * norm + 2e-3) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FiniteDifference, testing::Values(branches, fully_convolutional, perceptron));

}  // namespace
}  // namespace lockstep::device
