#include "nn/graph.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::nn {
namespace {

TEST(Graph, NamesParametersAsPyTorchDoes) {
  Graph g(2);
  auto x = g.batch_norm(
      "bn1", g.conv2d("conv1", g.input({3, 8, 8}), {.out_channels = 4, .kernel = {3, 3}, .bias = false}));
  g.linear("fc", g.flatten(x), {10});
  std::vector<std::string> names;
  for (const Parameter& p : g.parameters) names.push_back(p.name + p.shape.text());
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight[4, 3, 3, 3]", "bn1.weight[4]", "bn1.bias[4]",
                                             "fc.weight[10, 144]", "fc.bias[10]"}));
  EXPECT_EQ(g.buffers[0].name, "bn1.running_mean");
  EXPECT_EQ(g.buffers[1].fill, 1.0f);
}

TEST(Graph, ShapeRulesFollowPyTorch) {
  Graph g(2);
  auto x = g.input({3, 9, 10});
  EXPECT_EQ(g.shape(g.conv2d("c", x,
                             {.out_channels = 6,
                              .kernel = {3, 2},
                              .stride = {2, 1},
                              .padding = {1, 0},
                              .dilation = {2, 1},
                              .groups = 3})),
            (Shape{2, 6, 4, 9}));
  EXPECT_EQ(g.shape(g.max_pool(x, {{3, 3}, {2, 2}, {1, 1}})), (Shape{2, 3, 5, 5}));
  EXPECT_EQ(g.shape(g.avg_pool(x)), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(g.shape(g.flatten(g.global_avg_pool(x))), (Shape{2, 3}));
  EXPECT_EQ(g.shape(g.concat({x, x})), (Shape{2, 6, 9, 10}));
}

TEST(Graph, RefusesAnInputThatIsTooSmall) {
  Graph g(2);
  auto x = g.input({3, 4, 4});
  EXPECT_THROW(g.conv2d("c", x, {.out_channels = 6, .kernel = {7, 7}}), UserError);
}

TEST(Graph, RefusesWhatDoesNotFit) {
  Graph g(2);
  auto x = g.input({3, 4, 4});
  EXPECT_THROW(g.linear("l", x, {5}), std::logic_error);
  EXPECT_THROW(g.add(x, g.max_pool(x)), std::logic_error);
  EXPECT_THROW(g.conv2d("c", x, {.out_channels = 4, .groups = 2}), std::logic_error);
}

}  // namespace
}  // namespace lockstep::nn
