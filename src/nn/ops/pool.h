#pragma once

#include <array>

#include "nn/ops/window.h"

namespace lockstep::nn {

/// As torch.nn.MaxPool2d without ceil_mode; padding counts as minus infinity.
struct MaxPool {
  std::array<int64_t, 2> kernel{2, 2};
  std::array<int64_t, 2> stride{2, 2};
  std::array<int64_t, 2> padding{0, 0};
};

/// As torch.nn.AvgPool2d without ceil_mode.
struct AvgPool {
  std::array<int64_t, 2> kernel{2, 2};
  std::array<int64_t, 2> stride{2, 2};
  std::array<int64_t, 2> padding{0, 0};
  bool count_include_pad = true;
};

/// Mean over [H, W]: [N, C, H, W] to [N, C, 1, 1].
struct GlobalAvgPool {};

template <class Pool>
Shape pooled_shape(const Pool& op, const Shape& x) {
  return {x[0], x[1], window_count(x[2], op.kernel[0], op.stride[0], op.padding[0]),
          window_count(x[3], op.kernel[1], op.stride[1], op.padding[1])};
}
inline Shape output_shape(const MaxPool& op, const Shape& x) { return pooled_shape(op, x); }
inline Shape output_shape(const AvgPool& op, const Shape& x) { return pooled_shape(op, x); }
inline Shape output_shape(const GlobalAvgPool&, const Shape& x) { return {x[0], x[1], 1, 1}; }

}  // namespace lockstep::nn
