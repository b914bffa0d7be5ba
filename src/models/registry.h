// The models that `model.name` knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/graph.h"

namespace lockstep::models {

/// What a job says about its model. Zero, or no value, takes the model's default.
struct ModelOptions {
  std::string name = "cnn";
  int64_t classes = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::optional<double> dropout;  ///< before the classifier, in [0, 1)
  bool sync_batch_norm = false;   ///< of every batch norm: its statistics span all devices
};

struct ModelInfo {
  std::string name;
  std::string summary;  ///< one line for --help
  int64_t classes;      ///< the defaults, those of the data set that the model was published for
  int64_t channels, height, width;
  int64_t minimum_size;  ///< the smallest height and width: one pixel is left in the last feature map
  double dropout;
  std::string classifier = "fc";  ///< the layer that gives the logits: its weight is [classes, features]
};

/// Every model, in the order in which --help lists them.
std::vector<ModelInfo> list();

/// Throws UserError for an unknown name, with the nearest known one.
ModelInfo find(const std::string& name);

/// `options` with every default filled in. Throws UserError for an unknown model, sizes below 1 or below the
/// model's minimum, and a dropout outside [0, 1).
ModelOptions resolve(const ModelOptions& options);

/// The graph for micro-batches [micro_batch, channels, height, width]: the model, then softmax cross-entropy
/// over its logits [micro_batch, classes]. Throws as resolve().
nn::Graph build(const ModelOptions& options, int64_t micro_batch, const nn::SoftmaxCrossEntropy& loss = {});

}  // namespace lockstep::models
