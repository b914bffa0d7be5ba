#pragma once

#include <vector>

#include "core/shape.h"

namespace lockstep::nn {

/// Joins [N, C_i, H, W] along the channels.
struct Concat {};

inline Shape output_shape(const Concat&, const std::vector<Shape>& inputs) {
  Shape y = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) y[1] += inputs[i][1];
  return y;
}

}  // namespace lockstep::nn
