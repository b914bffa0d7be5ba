#include "comm/half.h"

#include <algorithm>
#include <bit>

#include "device/cpu/simd.h"

namespace lockstep::comm {

namespace {

// Arithmetic without branches, which the compiler turns into vectors of any width. The processors'
// own conversions differ: AVX512-BF16 flushes subnormals to zero, F16C keeps a part of NaN.

LOCKSTEP_INLINE uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
LOCKSTEP_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// condition ? a : b, of which both are computed: a choice between floats would else become a branch.
LOCKSTEP_INLINE uint32_t select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

constexpr uint32_t kInfinity = 0x7f800000;

LOCKSTEP_INLINE uint16_t bf16_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(select((bits & 0x7fffffff) > kInfinity, 0x7fc0, rounded));
}

// The two ways of fp16 follow M. Dukhan's FP16 library: fp32 arithmetic rounds and shifts the mantissa.

constexpr uint32_t exponent(int e) { return static_cast<uint32_t>(127 + e) << 23; }

LOCKSTEP_INLINE uint16_t f16_of(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = (bits ^ magnitude) >> 16;
  // 4 |x|; infinity from 2^16 on.
  const float scaled = (float_of(magnitude) * 0x1p112f) * 0x1p-110f;
  // Beside 2^(e+15), fp32's last bit is f16's: the addition rounds, and leaves the mantissa with its leading
  // one in the low bits, without one for subnormals. e is -14 at least.
  const uint32_t power = std::max(magnitude & kInfinity, exponent(-14)) + (uint32_t{15} << 23);
  const uint32_t sum = bits_of(scaled + float_of(power));
  const uint32_t half = (sum >> 13 & 0x7c00) + (sum & 0xfff);
  return static_cast<uint16_t>(select(magnitude > kInfinity, 0x7e00, half | sign));
}

LOCKSTEP_INLINE float of_f16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fff, sign = static_cast<uint32_t>(half & 0x8000) << 16;
  // The highest exponent becomes fp32's highest, infinity or NaN, which the factor leaves as it is.
  const float normal = float_of((magnitude << 13) + (uint32_t{255 - 31} << 23)) * 0x1p-112f;
  const float subnormal = float_of(magnitude | exponent(-1)) - 0.5f;  // 2^-24 is the last bit of 1/2
  return float_of(select(magnitude < 0x400, bits_of(subnormal), bits_of(normal)) | sign);
}

LOCKSTEP_SIMD void to_bf16(uint16_t* __restrict out, const float* __restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = bf16_of(in[i]);
}
LOCKSTEP_SIMD void to_f16(uint16_t* __restrict out, const float* __restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = f16_of(in[i]);
}
LOCKSTEP_SIMD void from_bf16(float* __restrict out, const uint16_t* __restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = float_of(static_cast<uint32_t>(in[i]) << 16);
}
LOCKSTEP_SIMD void from_f16(float* __restrict out, const uint16_t* __restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = of_f16(in[i]);
}

}  // namespace

void to_half(Dtype half, uint16_t* out, const float* in, size_t count) {
  half == Dtype::bf16 ? to_bf16(out, in, count) : to_f16(out, in, count);
}

void from_half(Dtype half, float* out, const uint16_t* in, size_t count) {
  half == Dtype::bf16 ? from_bf16(out, in, count) : from_f16(out, in, count);
}

}  // namespace lockstep::comm
