#include "comm/half.h"

#include <bit>

#include "device/cpu/simd.h"

namespace lockstep::comm {

namespace {

// Integer arithmetic without branches, which the compiler turns into vectors of any width; the processor's
// own conversions (F16C, AVX512-BF16) treat subnormals or NaN each in another way.

LOCKSTEP_INLINE uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
LOCKSTEP_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

constexpr uint32_t kInfinity = 0x7f800000;

LOCKSTEP_INLINE uint16_t bf16_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kInfinity ? 0x7fc0 : rounded);
}

constexpr uint32_t exponent(int e) { return static_cast<uint32_t>(127 + e) << 23; }
constexpr uint32_t kRebias = uint32_t{127 - 15} << 23;  // between the exponents of fp32 and fp16

LOCKSTEP_INLINE uint16_t f16_of(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = (bits ^ magnitude) >> 16;
  // A change of the exponent's bias; a carry out of the last mantissa reaches infinity by itself.
  const uint32_t normal = (magnitude - kRebias + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 1/2 moves the last bit of f16's subnormals, 2^-24, to the last of the sum, which rounds there.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  uint32_t half = magnitude < exponent(-14) ? subnormal : normal;
  half = magnitude >= exponent(16) ? 0x7c00 : half;
  return static_cast<uint16_t>(magnitude > kInfinity ? 0x7e00 : half | sign);
}

LOCKSTEP_INLINE float of_f16(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13,
                 sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t normal = magnitude + kRebias;
  // As a normal number of the smallest exponent, less the leading one that it does not have.
  const uint32_t subnormal = bits_of(float_of(magnitude | exponent(-14)) - float_of(exponent(-14)));
  uint32_t bits = magnitude < uint32_t{0x400} << 13 ? subnormal : normal;
  bits = magnitude >= uint32_t{0x7c00} << 13 ? magnitude | kInfinity : bits;
  return float_of(bits | sign);
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
