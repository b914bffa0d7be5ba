#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

/// What a user is told; fails the test when nothing is thrown.
std::string error_of(const ModelOptions& options, int64_t micro_batch = 2) {
  try {
    build(options, micro_batch);
  } catch (const UserError& e) {
    return e.what();
  }
  ADD_FAILURE() << "no UserError for model '" << options.name << "'";
  return "";
}

bool has_dropout(const nn::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const nn::Node& n) { return std::holds_alternative<nn::Dropout>(n.op); });
}

TEST(Registry, EveryModelBuildsAtItsDefaultAndItsSmallestSize) {
  std::set<std::string> names;
  for (const ModelInfo& m : list()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name << " twice";
    EXPECT_FALSE(m.summary.empty());
    const nn::Graph usual = build({.name = m.name}, 3);
    EXPECT_EQ(usual.values[0].shape, (Shape{3, m.channels, m.height, m.width}));
    ASSERT_EQ(std::string(nn::op_name(usual.nodes.back().op)), "softmax_cross_entropy");
    EXPECT_EQ(usual.shape(usual.nodes.back().inputs[0]), (Shape{3, m.classes}));

    ModelOptions least{.name = m.name, .height = m.minimum_size, .width = m.minimum_size};
    EXPECT_NO_THROW(build(least, 1)) << m.name;
    least.height -= 1;
    EXPECT_THAT(error_of(least), HasSubstr("too small for model '" + m.name + "'"));
  }
  EXPECT_EQ(names.size(), 11u);
}

TEST(Registry, OptionsReachTheGraph) {
  const nn::Graph graph =
      build({.name = "cnn", .classes = 7, .channels = 3, .height = 20, .width = 16, .dropout = 0.25}, 5,
            {.label_smoothing = 0.1, .ignore_index = 255});
  EXPECT_EQ(graph.batch(), 5);
  EXPECT_EQ(graph.values[0].shape, (Shape{5, 3, 20, 16}));
  EXPECT_EQ(graph.parameters.back().shape, (Shape{7}));
  const auto& loss = std::get<nn::SoftmaxCrossEntropy>(graph.nodes.back().op);
  EXPECT_EQ(loss.label_smoothing, 0.1);
  EXPECT_EQ(loss.ignore_index, 255);
  EXPECT_TRUE(has_dropout(graph));
  EXPECT_FALSE(has_dropout(build({.name = "cnn", .dropout = 0.0}, 1)));
  EXPECT_TRUE(has_dropout(build({.name = "resnet18", .dropout = 0.5}, 1)));
}

TEST(Registry, UnknownModelGetsTheNearestName) {
  EXPECT_THAT(error_of({.name = "resnet51"}), HasSubstr("did you mean 'resnet50'?"));
  EXPECT_THAT(error_of({.name = "ResNet-18"}), HasSubstr("did you mean 'resnet18'?"));
  EXPECT_THAT(error_of({.name = "a-quite-different-network"}), HasSubstr("trainer --help"));
}

TEST(Registry, ImpossibleSizesAreRefused) {
  EXPECT_THAT(error_of({.name = "cnn", .classes = -1}), HasSubstr("classes '-1'"));
  EXPECT_THAT(error_of({.name = "cnn", .width = -28}), HasSubstr("width '-28'"));
  EXPECT_THAT(error_of({.name = "cnn", .dropout = 1.0}), HasSubstr("dropout '1"));
  EXPECT_THAT(error_of({.name = "cnn", .dropout = -0.1}), HasSubstr("dropout '-0.1"));
  EXPECT_THAT(error_of({.name = "cnn"}, 0), HasSubstr("micro-batch of '0'"));
}

TEST(Cnn, HasTheDocumentedLayersAndSize) {
  const nn::Graph graph = build({.name = "cnn"}, 16);
  EXPECT_EQ(graph.parameter_count(), 80'218);
  EXPECT_EQ(graph.parameters.front().name, "conv1.weight");
  EXPECT_EQ(graph.parameters.front().shape, (Shape{16, 1, 3, 3}));
  EXPECT_EQ(graph.parameters.back().name, "fc.bias");
}

}  // namespace
}  // namespace lockstep::models
