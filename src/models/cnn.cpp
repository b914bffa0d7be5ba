// A small network for 28x28 images, in the manner of VGG with batch norm: two blocks of two 3x3 convolutions,
// each block followed by a 2x2 max pool, and one linear layer. The first block is narrow: it runs on four
// times the pixels.
#include "models/families.h"

namespace lockstep::models {

nn::ValueId cnn(nn::Graph& graph, nn::ValueId x, const ModelOptions& options) {
  int layer = 0;
  for (const int64_t channels : {16, 64}) {
    for (int i = 0; i < 2; ++i) {
      const std::string n = std::to_string(++layer);
      x = conv_he(graph, "conv" + n, x, {.out_channels = channels, .kernel = {3, 3}, .padding = {1, 1}});
      x = graph.relu(graph.batch_norm("bn" + n, x));
    }
    x = graph.max_pool(x);
  }
  x = graph.flatten(x);
  if (*options.dropout > 0) x = graph.dropout(x, *options.dropout);
  return graph.linear("fc", x, {.out_features = options.classes});
}

}  // namespace lockstep::models
