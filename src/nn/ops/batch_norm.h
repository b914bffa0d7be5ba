#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// Batch normalisation over [N, H, W] as torch.nn.BatchNorm2d: the batch's mean and biased variance in
/// training, the running statistics in evaluation. After the fusion pass it may also add a residual (its
/// second input) and apply ReLU: y = relu(bn(x) + residual); or pool: y = max_pool(relu(bn(x))).
struct BatchNorm {
  double eps = 1e-5;
  double momentum = 0.1;
  bool sync = false;  ///< the statistics of a training pass span all devices, as torch.nn.SyncBatchNorm
  bool add = false;   ///< set by the fusion pass
  bool relu = false;  ///< set by the fusion pass
  bool pool =
      false;  ///< set by the fusion pass: 2x2, stride 2, no padding, even size; with relu, without add
};

inline Shape output_shape(const BatchNorm&, const Shape& x) { return x; }

}  // namespace lockstep::nn
