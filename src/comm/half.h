// fp32 to half precision and back, in bulk: what travels when gradients are compressed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace lockstep::comm {

/// Rounds to `half`, bf16 or f16, to nearest even. Subnormals are kept; beyond the largest value lies
/// infinity (f16: from 65520 on); NaN of any kind becomes the one positive quiet NaN, so that equal inputs
/// give equal bits on every processor.
void to_half(Dtype half, uint16_t* out, const float* in, size_t count);
/// Exact.
void from_half(Dtype half, float* out, const uint16_t* in, size_t count);

}  // namespace lockstep::comm
