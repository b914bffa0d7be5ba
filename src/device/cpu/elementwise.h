// What the element-wise kernels share.
#pragma once

#include "device/cpu/lowering.h"

namespace lockstep::device::cpu {

inline int64_t padded_count(const memory::desc& md) {
  return static_cast<int64_t>(md.get_size() / sizeof(float));
}

inline float* address(const std::vector<Slot>& slots, const Tensor& t) {
  return t.slot < 0 ? nullptr : static_cast<float*>(slots[t.slot].address);
}

/// The gradient of an element-wise operator's input: over its output's gradient where nobody else reads that.
inline Tensor gradient_in_place(Lowering& low, nn::ValueId input, const Tensor& dy) {
  if (!low.wants_gradient(input)) return {};
  if (!low.exclusive(dy)) return low.make_gradient(input, dy.md);
  low.give_gradient(input, dy);
  return dy;
}

}  // namespace lockstep::device::cpu
