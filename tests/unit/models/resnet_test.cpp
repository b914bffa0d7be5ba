#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "models/registry.h"

namespace lockstep::models {
namespace {

/// Lines "parameter NAME SHAPE" and "buffer NAME SHAPE" of one of torchvision's models, from the golden list.
std::vector<std::string> torchvision_tensors(const std::string& model) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/golden/networks/resnet_tensors.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(model + " ")) lines.push_back(line.substr(model.size() + 1));
  return lines;
}

std::vector<std::string> tensors(const nn::Graph& graph) {
  std::vector<std::string> lines;
  for (const nn::Parameter& p : graph.parameters)
    lines.push_back("parameter " + p.name + " " + p.shape.text());
  for (const nn::Buffer& b : graph.buffers) lines.push_back("buffer " + b.name + " " + b.shape.text());
  return lines;
}

const nn::Node& node(const nn::Graph& graph, const std::string& name) {
  for (const nn::Node& n : graph.nodes)
    if (n.name == name) return n;
  throw std::out_of_range(name);
}

nn::Init init_of(const nn::Graph& graph, const std::string& name) {
  for (const nn::Parameter& p : graph.parameters)
    if (p.name == name) return p.init;
  throw std::out_of_range(name);
}

template <class Op>
int64_t count(const nn::Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const nn::Node& n) { return std::holds_alternative<Op>(n.op); });
}

TEST(Resnet, TensorsAreTorchvisions) {
  const std::map<std::string, int64_t> totals = {{"resnet18", 11'689'512},
                                                 {"resnet34", 21'797'672},
                                                 {"resnet50", 25'557'032},
                                                 {"resnet101", 44'549'160},
                                                 {"resnet152", 60'192'808}};
  for (const auto& [name, total] : totals) {
    const nn::Graph graph = build({.name = name}, 2);
    EXPECT_EQ(graph.parameter_count(), total) << name;
    const std::vector<std::string> expected = torchvision_tensors(name);
    ASSERT_FALSE(expected.empty()) << name;
    EXPECT_EQ(tensors(graph), expected) << name;
  }
}

TEST(Resnet, BottlenecksStrideInTheirThreeByThree) {
  const nn::Graph graph = build({.name = "resnet50"}, 1);
  EXPECT_THAT(std::get<nn::Conv2d>(node(graph, "layer2.0.conv1").op).stride, testing::ElementsAre(1, 1));
  EXPECT_THAT(std::get<nn::Conv2d>(node(graph, "layer2.0.conv2").op).stride, testing::ElementsAre(2, 2));
  EXPECT_EQ(graph.shape(node(graph, "layer4.2.bn3").output), (Shape{1, 2048, 7, 7}));
}

TEST(Resnet, EveryBlockAddsItsShortcut) {
  EXPECT_EQ(count<nn::Add>(build({.name = "resnet18"}, 1)), 8);
  EXPECT_EQ(count<nn::Add>(build({.name = "resnet152"}, 1)), 50);
}

TEST(Resnet, StartsAsTorchvisions) {
  const nn::Graph graph = build({.name = "resnet18"}, 1);
  const nn::Init conv = init_of(graph, "layer3.0.conv1.weight");  // kaiming_normal_(mode='fan_out')
  EXPECT_EQ(conv.kind, nn::Init::normal);
  EXPECT_DOUBLE_EQ(conv.scale, std::sqrt(2.0 / (256 * 9)));
  EXPECT_EQ(init_of(graph, "layer3.0.bn2.weight").kind, nn::Init::ones);
  EXPECT_EQ(init_of(graph, "layer3.0.bn2.bias").kind, nn::Init::zeros);
  for (const char* name : {"fc.weight", "fc.bias"}) {  // torch.nn.Linear's default
    EXPECT_EQ(init_of(graph, name).kind, nn::Init::uniform);
    EXPECT_DOUBLE_EQ(init_of(graph, name).scale, 1 / std::sqrt(512.0));
  }
  for (const nn::Parameter& p : graph.parameters) EXPECT_EQ(p.norm_or_bias, p.shape.rank() == 1) << p.name;
}

TEST(Resnet, SmallStemKeepsTheResolution) {
  const nn::Graph graph = build({.name = "resnet18_32"}, 4);
  EXPECT_EQ(count<nn::MaxPool>(graph), 0);
  EXPECT_EQ(graph.shape(node(graph, "conv1").output), (Shape{4, 64, 32, 32}));
  EXPECT_EQ(graph.shape(node(graph, "layer4.1.bn2").output), (Shape{4, 512, 4, 4}));
  EXPECT_EQ(graph.parameters[0].shape, (Shape{64, 3, 3, 3}));
  EXPECT_EQ(graph.parameter_count(), 11'173'962);
  EXPECT_EQ(build({.name = "resnet50_32"}, 1).parameter_count(), 23'520'842);
}

}  // namespace
}  // namespace lockstep::models
