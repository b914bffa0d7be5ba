#include "train/ulp.h"

#include <bit>
#include <cmath>

#include "core/text.h"

namespace lockstep::train {

// Where a float stands on the line of all floats.
static int64_t place(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const int64_t magnitude = bits & 0x7fffffffu;
  return bits >> 31 ? -1 - magnitude : magnitude;
}

uint64_t ulp_distance(float a, float b) {
  const int64_t from = place(a), to = place(b);
  if (from == to) return 0;
  if (std::isnan(a) || std::isnan(b)) return kInfinitelyFar;
  return static_cast<uint64_t>(from < to ? to - from : from - to);
}

FarthestPair farthest_pair(std::span<const float> a, std::span<const float> b) {
  FarthestPair farthest;
  for (size_t i = 0; i < a.size(); ++i)
    if (const uint64_t ulp = ulp_distance(a[i], b[i]); ulp > farthest.ulp) farthest = {ulp, i};
  return farthest;
}

std::string text_of_ulp(uint64_t ulp) {
  return ulp == kInfinitelyFar ? "NaN" : with_commas(static_cast<int64_t>(ulp));
}

}  // namespace lockstep::train
