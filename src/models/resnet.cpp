// Residual networks: He et al., "Deep residual learning for image recognition", CVPR 2016. Layer names,
// shapes and initialisation are those of torchvision.models.resnet, that is "v1.5": a bottleneck strides in
// its 3x3 convolution.
#include <stdexcept>

#include "models/families.h"

namespace lockstep::models {
namespace {

struct Layout {
  std::array<int, 4> blocks;
  bool bottleneck;
};

Layout layout_of(int depth) {
  switch (depth) {
    case 18:
      return {{2, 2, 2, 2}, false};
    case 34:
      return {{3, 4, 6, 3}, false};
    case 50:
      return {{3, 4, 6, 3}, true};
    case 101:
      return {{3, 4, 23, 3}, true};
    case 152:
      return {{3, 8, 36, 3}, true};
    default:
      throw std::logic_error("resnet: no layout of depth " + std::to_string(depth));
  }
}

nn::Conv2d conv1x1(int64_t channels, int64_t stride = 1) {
  return {.out_channels = channels, .kernel = {1, 1}, .stride = {stride, stride}};
}
nn::Conv2d conv3x3(int64_t channels, int64_t stride = 1) {
  return {.out_channels = channels, .kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}};
}

/// "layer1.0." and the graph, to keep the blocks below readable.
struct Block {
  nn::Graph& graph;
  std::string prefix;

  nn::ValueId conv_bn(int number, nn::ValueId x, const nn::Conv2d& op) const {
    const std::string n = std::to_string(number);
    return graph.batch_norm(prefix + "bn" + n, conv_he(graph, prefix + "conv" + n, x, op));
  }

  /// The identity, or a 1x1 convolution where the shape changes.
  nn::ValueId shortcut(nn::ValueId x, int64_t channels, int64_t stride) const {
    if (stride == 1 && graph.shape(x)[1] == channels) return x;
    x = conv_he(graph, prefix + "downsample.0", x, conv1x1(channels, stride));
    return graph.batch_norm(prefix + "downsample.1", x);
  }

  nn::ValueId basic(nn::ValueId x, int64_t width, int64_t stride) const {
    nn::ValueId y = graph.relu(conv_bn(1, x, conv3x3(width, stride)));
    y = conv_bn(2, y, conv3x3(width));
    return graph.relu(graph.add(y, shortcut(x, width, stride)));
  }

  nn::ValueId bottleneck(nn::ValueId x, int64_t width, int64_t stride) const {
    nn::ValueId y = graph.relu(conv_bn(1, x, conv1x1(width)));
    y = graph.relu(conv_bn(2, y, conv3x3(width, stride)));
    y = conv_bn(3, y, conv1x1(4 * width));
    return graph.relu(graph.add(y, shortcut(x, 4 * width, stride)));
  }
};

}  // namespace

nn::ValueId resnet(nn::Graph& graph, nn::ValueId x, const ModelOptions& options, int depth, Stem stem) {
  const Layout layout = layout_of(depth);
  const bool imagenet = stem == Stem::imagenet;
  x = conv_he(graph, "conv1", x,
              imagenet ? nn::Conv2d{.out_channels = 64, .kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}}
                       : conv3x3(64));
  x = graph.relu(graph.batch_norm("bn1", x));
  if (imagenet) x = graph.max_pool(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});

  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < layout.blocks[stage]; ++block) {
      const Block b{graph, "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + "."};
      const int64_t width = int64_t{64} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      x = layout.bottleneck ? b.bottleneck(x, width, stride) : b.basic(x, width, stride);
    }

  x = graph.flatten(graph.global_avg_pool(x));
  if (*options.dropout > 0) x = graph.dropout(x, *options.dropout);
  return graph.linear("fc", x, {.out_features = options.classes});
}

}  // namespace lockstep::models
