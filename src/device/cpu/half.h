// Values stored in float, bfloat16 or IEEE binary16, widened to float on loading and rounded to nearest even
// on storing: one at a time (V = float) or a vector of a channel block. The formats and the rounding are
// those of IEEE 754-2019 (binary16; bfloat16 by the same rules with 8 and 7 bits): too large becomes
// infinite, subnormals are kept, NaN stays NaN. In plain integer arithmetic, so that the bits do not depend
// on the processor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/cpu/onednn.h"
#include "device/cpu/simd.h"

namespace lockstep::device::cpu {

// The words of 32 and 16 bits that go with a float or a vector of them.
template <class V>
struct WordsOf;
template <>
struct WordsOf<float> {
  typedef uint32_t Words;
  typedef uint16_t Halves;
};
template <>
struct WordsOf<Float8> {
  typedef uint32_t Words __attribute__((vector_size(32)));
  typedef uint16_t Halves __attribute__((vector_size(16)));
};
template <>
struct WordsOf<Float16> {
  typedef uint32_t Words __attribute__((vector_size(64)));
  typedef uint16_t Halves __attribute__((vector_size(32)));
};
template <class V>
using Words = typename WordsOf<V>::Words;

template <class To, class From>
LOCKSTEP_INLINE To bits_as(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// The storages of a tensor, in the order of kernel tables.
struct F32 {
  using Element = float;
};

struct Bf16 {
  using Element = uint16_t;
  template <class V>
  static LOCKSTEP_INLINE V widen(const Words<V>& half) {
    return bits_as<V>(half << 16);
  }
  template <class V>
  static LOCKSTEP_INLINE Words<V> narrow(const V& x) {
    const auto u = bits_as<Words<V>>(x);
    const Words<V> rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const Words<V> nan = (u >> 16) | 0x40u;
    return (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
  }
};

struct Fp16 {
  using Element = uint16_t;
  template <class V>
  static LOCKSTEP_INLINE V widen(const Words<V>& half) {
    constexpr uint32_t kRebias = 112u << 23;  // from 15 to 127
    const Words<V> magnitude = (half & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
    const Words<V> normal = magnitude + kRebias, special = magnitude + 2 * kRebias;
    // 2^-14 * (1 + f) - 2^-14 is a subnormal's value, exactly.
    constexpr uint32_t kSmallest = 113u << 23;
    const auto subnormal =
        bits_as<Words<V>>(bits_as<V>(magnitude + kSmallest) - std::bit_cast<float>(kSmallest));
    Words<V> out = exponent == 0x0f800000u ? special : normal;
    out = exponent == 0u ? subnormal : out;
    return bits_as<V>(out | ((half & 0x8000u) << 16));
  }
  template <class V>
  static LOCKSTEP_INLINE Words<V> narrow(const V& x) {
    const auto u = bits_as<Words<V>>(x);
    const Words<V> magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
    const Words<V> normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Added to 0.5, whose unit in the last place is the smallest subnormal, 2^-24, a small value rounds
    // itself.
    const Words<V> subnormal = bits_as<Words<V>>(bits_as<V>(magnitude) + 0.5f) - 0x3f000000u;
    const Words<V> infinite = magnitude * 0u + 0x7c00u, nan = magnitude * 0u + 0x7e00u;
    Words<V> out = magnitude < (113u << 23) ? subnormal : normal;
    out = magnitude >= 0x477ff000u ? infinite : out;  // 65520, half way between the largest and 2^16
    out = magnitude > 0x7f800000u ? nan : out;
    return out | sign;
  }
};

/// Elements i, i + 1, ... of memory in storage S.
template <class S, class V>
LOCKSTEP_INLINE V load(const void* memory, int64_t i) {
  const auto* p = static_cast<const typename S::Element*>(memory) + i;
  if constexpr (std::is_same_v<S, F32>) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  } else {
    typename WordsOf<V>::Halves h;
    std::memcpy(&h, p, sizeof h);
    if constexpr (std::is_same_v<V, float>) {
      return S::template widen<V>(h);
    } else {
      return S::template widen<V>(__builtin_convertvector(h, Words<V>));
    }
  }
}
template <class S, class V>
LOCKSTEP_INLINE void store(void* memory, int64_t i, const V& v) {
  auto* p = static_cast<typename S::Element*>(memory) + i;
  if constexpr (std::is_same_v<S, F32>) {
    std::memcpy(p, &v, sizeof v);
  } else {
    typename WordsOf<V>::Halves h;
    if constexpr (std::is_same_v<V, float>) {
      h = static_cast<uint16_t>(S::template narrow<V>(v));
    } else {
      h = __builtin_convertvector(S::template narrow<V>(v), typename WordsOf<V>::Halves);
    }
    std::memcpy(p, &h, sizeof h);
  }
}

/// 0, 1, 2 for float, bfloat16, binary16: which entry of a kernel table.
inline int storage_of(memory::data_type type) {
  return type == memory::data_type::f32 ? 0 : type == memory::data_type::bf16 ? 1 : 2;
}

/// The elements of a tensor, whatever their storage.
struct Elements {
  std::byte* data = nullptr;
  int storage = 0;  ///< storage_of()

  explicit operator bool() const { return data; }
  size_t size() const { return storage == 0 ? 4 : 2; }
  void* at(int64_t i) const { return data ? data + i * static_cast<int64_t>(size()) : nullptr; }
  float get(int64_t i) const {
    return storage == 0   ? load<F32, float>(data, i)
           : storage == 1 ? load<Bf16, float>(data, i)
                          : load<Fp16, float>(data, i);
  }
};

/// A kernel function compiled for each storage, as a table: name##_table[storage](...).
#define LOCKSTEP_EACH_STORAGE(name, PARAMETERS, ARGUMENTS)            \
  LOCKSTEP_SIMD void name##_f32 PARAMETERS { name<F32> ARGUMENTS; }   \
  LOCKSTEP_SIMD void name##_bf16 PARAMETERS { name<Bf16> ARGUMENTS; } \
  LOCKSTEP_SIMD void name##_fp16 PARAMETERS { name<Fp16> ARGUMENTS; } \
  constexpr decltype(&name##_f32) name##_table[] = {name##_f32, name##_bf16, name##_fp16};

}  // namespace lockstep::device::cpu
