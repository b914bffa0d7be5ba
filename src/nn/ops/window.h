// Sliding windows, as convolution and pooling share them.
#pragma once

#include <cstdint>

#include "core/shape.h"

namespace lockstep::nn {

/// Positions of a window along one axis; 0 or less when the padded input is smaller than the window.
constexpr int64_t window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                               int64_t dilation = 1) {
  int64_t room = size + 2 * padding - (dilation * (kernel - 1) + 1);
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace lockstep::nn
