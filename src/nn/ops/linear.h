#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// y = x W^T + b as torch.nn.Linear: x [N, F], weight [out, F], bias [out].
struct Linear {
  int64_t out_features = 0;
  bool bias = true;
};

inline Shape output_shape(const Linear& op, const Shape& x) { return {x[0], op.out_features}; }

}  // namespace lockstep::nn
