#pragma once

#include <array>

#include "nn/ops/window.h"

namespace lockstep::nn {

/// 2-D cross-correlation as torch.nn.Conv2d: x [N, C, H, W], weight [K, C / groups, kh, kw], bias [K].
struct Conv2d {
  int64_t out_channels = 0;
  std::array<int64_t, 2> kernel{1, 1};
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> padding{0, 0};
  std::array<int64_t, 2> dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
};

inline Shape output_shape(const Conv2d& op, const Shape& x) {
  return {x[0], op.out_channels,
          window_count(x[2], op.kernel[0], op.stride[0], op.padding[0], op.dilation[0]),
          window_count(x[3], op.kernel[1], op.stride[1], op.padding[1], op.dilation[1])};
}

}  // namespace lockstep::nn
