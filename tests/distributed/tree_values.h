// Numbers whose sum shows its order, and the reference for that order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/random.h"

namespace lockstep::test {

/// Numbers of very different magnitude, so that any other order of additions shows in the bits.
template <class T>
std::vector<T> values_of(int device, size_t count, uint64_t seed) {
  std::vector<T> x(count);
  RandomStream random({.seed = seed, .sample = static_cast<uint64_t>(device), .purpose = Purpose::generate});
  for (T& v : x) {
    uint32_t word = random.next();
    v = std::ldexp(static_cast<T>(random.next_uniform() - 0.5f) / T{3}, static_cast<int>(word % 24));
  }
  return x;
}

/// The reference: neighbours first, one device after the other.
template <class T>
std::vector<T> tree_sum(size_t count, uint64_t seed, int first, int devices) {
  if (devices == 1) return values_of<T>(first, count, seed);
  auto left = tree_sum<T>(count, seed, first, devices / 2);
  auto right = tree_sum<T>(count, seed, first + devices / 2, devices - devices / 2);
  for (size_t i = 0; i < count; ++i) left[i] += right[i];
  return left;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace lockstep::test
