// The reference of sums that cross between ranks in half precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "comm/half.h"
#include "distributed/tree_values.h"

namespace lockstep::test {

/// As values_of, brought into the range of `half`: some below the normal numbers of f16, none beyond its
/// largest.
inline std::vector<float> values_in(Dtype half, int device, size_t count, uint64_t seed) {
  std::vector<float> x = values_of<float>(device, count, seed);
  for (float& v : x) v = std::ldexp(v, half == Dtype::f16 ? -12 : 0);
  return x;
}

inline std::vector<float> rounded(Dtype half, const std::vector<float>& x) {
  std::vector<uint16_t> halves(x.size());
  std::vector<float> back(x.size());
  comm::to_half(half, halves.data(), x.data(), x.size());
  comm::from_half(half, back.data(), halves.data(), x.size());
  return back;
}

/// Neighbours first, one after the other.
inline std::vector<float> tree_over(const std::vector<std::vector<float>>& terms, size_t first, size_t n) {
  if (n == 1) return terms[first];
  std::vector<float> left = tree_over(terms, first, n / 2);
  const std::vector<float> right = tree_over(terms, first + n / 2, n - n / 2);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

/// What every device ends with: `devices` holds their vectors, `replicas` of them on each rank.
inline std::vector<float> compressed_sum(Dtype half, const std::vector<std::vector<float>>& devices,
                                         size_t replicas) {
  std::vector<std::vector<float>> ranks;
  for (size_t d = 0; d < devices.size(); d += replicas) ranks.push_back(tree_over(devices, d, replicas));
  if (ranks.size() == 1) return ranks[0];
  for (std::vector<float>& x : ranks) x = rounded(half, x);
  return rounded(half, tree_over(ranks, 0, ranks.size()));
}

}  // namespace lockstep::test
