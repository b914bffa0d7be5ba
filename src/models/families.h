// The model families, one .cpp each. A builder appends its layers to the graph and returns the logits
// [N, options.classes]; `options` come resolved.
#pragma once

#include "models/registry.h"
#include "nn/graph.h"

namespace lockstep::models {

enum class Stem {
  imagenet,  ///< 7x7 stride 2, then 3x3 max pool stride 2
  cifar      ///< 3x3 stride 1, no pool: for images of about 32x32 (He et al. 2016, section 4.2)
};

/// For 28x28 images.
nn::ValueId cnn(nn::Graph& graph, nn::ValueId x, const ModelOptions& options);

/// ResNet of `depth` 18, 34, 50, 101 or 152.
nn::ValueId resnet(nn::Graph& graph, nn::ValueId x, const ModelOptions& options, int depth, Stem stem);

/// A convolution without bias that starts from He's normal distribution over the fan-out, as torchvision's
/// models do: standard deviation sqrt(2 / (out_channels * kh * kw)).
nn::ValueId conv_he(nn::Graph& graph, const std::string& name, nn::ValueId x, nn::Conv2d op);

}  // namespace lockstep::models
