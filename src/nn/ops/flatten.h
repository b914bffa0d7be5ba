#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// [N, C, H, W] to [N, C * H * W], in that order. Free on a device that keeps the memory as it is.
struct Flatten {};

inline Shape output_shape(const Flatten&, const Shape& x) { return {x[0], x.count() / x[0]}; }

}  // namespace lockstep::nn
