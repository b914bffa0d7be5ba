#include "nn/fusion.h"

#include <gtest/gtest.h>

#include "nn/gradient_order.h"

namespace lockstep::nn {
namespace {

std::vector<std::string> names(const Graph& g) {
  std::vector<std::string> all;
  for (const Node& n : g.nodes) all.push_back(op_name(n.op));
  return all;
}

TEST(Fusion, BatchNormTakesInAddAndRelu) {
  Graph g(2);
  auto x = g.relu(g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4}));
  auto y = g.batch_norm("bn", g.conv2d("d", x, {.out_channels = 4}));
  auto out = g.relu(g.add(y, x));
  g.global_avg_pool(out);
  const Graph f = fuse(g);
  EXPECT_EQ(names(f),
            (std::vector<std::string>{"input", "conv2d", "relu", "conv2d", "batch_norm", "global_avg_pool"}));
  const Node& bn = f.nodes[4];
  EXPECT_TRUE(std::get<BatchNorm>(bn.op).add && std::get<BatchNorm>(bn.op).relu);
  EXPECT_EQ(bn.inputs, (std::vector<ValueId>{f.nodes[3].output, x}));
  EXPECT_EQ(bn.output, out);
  EXPECT_EQ(f.values[out].producer, 4);
}

TEST(Fusion, BatchNormAndReluTakeInAPoolOfWholeWindows) {
  auto fused = [](const MaxPool& pool, int64_t size) {
    Graph g(2);
    g.max_pool(g.relu(g.batch_norm("bn", g.conv2d("c", g.input({3, size, size}), {.out_channels = 4}))),
               pool);
    return names(fuse(g)).back();
  };
  EXPECT_EQ(fused({}, 8), "batch_norm");
  EXPECT_EQ(fused({}, 9), "max_pool");  // a remainder of one row and column
  EXPECT_EQ(fused({.kernel = {3, 3}}, 8), "max_pool");
  EXPECT_EQ(fused({.stride = {1, 1}}, 8), "max_pool");
  EXPECT_EQ(fused({.padding = {1, 1}}, 8), "max_pool");
}

TEST(Fusion, LeavesValuesWithOtherReadersAlone) {
  Graph g(2);
  auto bn = g.batch_norm("bn", g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4}));
  g.add(g.relu(bn), bn);
  EXPECT_EQ(names(fuse(g)), (std::vector<std::string>{"input", "conv2d", "batch_norm", "relu", "add"}));
}

TEST(Fusion, AddTakesOneBatchNormOfTwo) {
  Graph g(2);
  auto x = g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4});
  g.relu(g.add(g.batch_norm("a", x), g.batch_norm("b", x)));
  const Graph f = fuse(g);
  EXPECT_EQ(names(f), (std::vector<std::string>{"input", "conv2d", "batch_norm", "batch_norm"}));
  EXPECT_EQ(f.nodes[3].name, "a");
  EXPECT_FALSE(std::get<BatchNorm>(f.nodes[2].op).relu);
}

TEST(GradientOrder, IsTheOrderInWhichBackwardEnds) {
  Graph g(2);
  auto x = g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4});
  g.linear("fc", g.flatten(g.batch_norm("bn", x)), {10});
  std::vector<std::string> order;
  for (ParameterId p : gradient_order(g)) order.push_back(g.parameters[p].name);
  EXPECT_EQ(order,
            (std::vector<std::string>{"fc.weight", "fc.bias", "bn.weight", "bn.bias", "c.weight", "c.bias"}));
}

}  // namespace
}  // namespace lockstep::nn
