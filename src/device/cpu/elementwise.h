// What the element-wise kernels share: loops over whole tensors, padding included, in their storage.
#pragma once

#include "device/cpu/half.h"
#include "device/cpu/lowering.h"

namespace lockstep::device::cpu {

inline int64_t padded_count(const memory::desc& md) {
  return static_cast<int64_t>(md.get_size() / memory::data_type_size(type_of(md)));
}

inline Elements elements(const std::vector<Slot>& slots, const Tensor& t) {
  if (t.slot < 0) return {};
  return {static_cast<std::byte*>(slots[t.slot].address), storage_of(type_of(t.md))};
}

// All operands but cast's are of one storage. `to` may be one of the others.
void relu(const Elements& x, const Elements& to, int64_t count);  ///< max(x, 0); lets NaN through
void add(const Elements& a, const Elements& b, bool relu, const Elements& to, int64_t count);
/// `d` where y > 0, else 0.
void where_positive(const Elements& y, const Elements& d, const Elements& to, int64_t count);
void cast(const Elements& from, const Elements& to, int64_t count);
/// Floats rounded in place to what `type` can hold.
void round_to(memory::data_type type, float* x, int64_t count);

/// The gradient of an element-wise operator's input: over its output's gradient where nobody else reads that.
inline Tensor gradient_in_place(Lowering& low, nn::ValueId input, const Tensor& dy) {
  if (!low.wants_gradient(input)) return {};
  if (!low.exclusive(dy)) return low.make_gradient(input, dy.md);
  low.give_gradient(input, dy);
  return dy;
}

}  // namespace lockstep::device::cpu
