#include <algorithm>
#include <cstring>

#include "comm/algorithm.h"

namespace lockstep::comm {

namespace {

template <class T>
void add_as(void* sum, const void* a, const void* b, size_t bytes) {
  auto* s = static_cast<T*>(sum);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const size_t n = bytes / sizeof(T);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) s[i] = x[i] + y[i];
}

}  // namespace

void add_into(Dtype dtype, void* sum, const void* a, const void* b, size_t bytes) {
  if (dtype == Dtype::f64)
    add_as<double>(sum, a, b, bytes);
  else
    add_as<float>(sum, a, b, bytes);
}

namespace {

// Blocks stay in the first-level cache while they climb the tree.
constexpr size_t kBlock = 4096;

void sum_block(Dtype dtype, std::byte* out, std::span<const std::byte* const> sources, size_t at,
               size_t bytes) {
  if (sources.size() == 1) {
    std::memcpy(out, sources[0] + at, bytes);
    return;
  }
  if (sources.size() == 2) return add_into(dtype, out, sources[0] + at, sources[1] + at, bytes);
  alignas(64) std::byte right[kBlock];
  const size_t half = sources.size() / 2;
  sum_block(dtype, out, sources.first(half), at, bytes);
  sum_block(dtype, right, sources.subspan(half), at, bytes);
  add(dtype, out, right, bytes);
}

}  // namespace

void tree_sum(Dtype dtype, std::byte* sum, std::span<const std::byte* const> sources, size_t bytes) {
  if (sources.size() == 2) return add_into(dtype, sum, sources[0], sources[1], bytes);
  alignas(64) std::byte block[kBlock];
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t n = std::min(kBlock, bytes - at);
    sum_block(dtype, block, sources, at, n);
    std::memcpy(sum + at, block, n);
  }
}

void add(Dtype dtype, void* a, const void* b, size_t bytes) { add_into(dtype, a, a, b, bytes); }

}  // namespace lockstep::comm
