#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// Zeroes elements with probability p and scales the others by 1 / (1 - p) in training; identity in
/// evaluation. The mask is a function of (seed, step, sample's row in the data set, `stream`), of nothing
/// else; elements of a sample are numbered channels-last.
struct Dropout {
  double p = 0.5;
  uint32_t stream = 0;  ///< tells the dropouts of one graph apart; set by the builder
};

inline Shape output_shape(const Dropout&, const Shape& x) { return x; }

}  // namespace lockstep::nn
