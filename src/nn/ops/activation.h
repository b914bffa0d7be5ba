#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// y = max(x, 0).
struct Relu {};

/// y = x * Phi(x), the exact form with erf, as torch.nn.GELU().
struct Gelu {};

inline Shape output_shape(const Relu&, const Shape& x) { return x; }
inline Shape output_shape(const Gelu&, const Shape& x) { return x; }

}  // namespace lockstep::nn
