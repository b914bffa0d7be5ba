// Vectors of one channel block, and functions compiled once per instruction set. A block is 16 floats where
// AVX-512 runs, else 8.
#pragma once

#include <cstdint>
#include <cstring>

namespace lockstep::device::cpu {

typedef float Float16 __attribute__((vector_size(64)));
typedef float Float8 __attribute__((vector_size(32)));

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/// The loader picks the widest version that the processor runs (GCC's ifunc dispatch; sanitizers cannot start
/// it).
#define LOCKSTEP_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_SIMD
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

/// Channels in a block of the activations' layout on this processor: 16 or 8.
int64_t channel_block();

template <class V>
constexpr int64_t lanes = sizeof(V) / sizeof(float);

/// Of floats that are not activations: parameters, statistics.
template <class V>
LOCKSTEP_INLINE V load(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace lockstep::device::cpu
