// Distance between floats in units in the last place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

namespace lockstep::train {

/// Of a NaN from everything but the same bits.
inline constexpr uint64_t kInfinitelyFar = std::numeric_limits<uint64_t>::max();

/// Steps from one float to the next between `a` and `b`. All floats but NaN lie on one line, -0 just below
/// +0, the infinities at its ends: 0 means the same bits, for NaN too.
uint64_t ulp_distance(float a, float b);

struct FarthestPair {
  uint64_t ulp = 0;
  size_t index = 0;  ///< of the first pair that is so far apart
};
/// The pair of elements that is farthest apart. Both have equally many.
FarthestPair farthest_pair(std::span<const float> a, std::span<const float> b);

/// "12", "1,234,567", "NaN".
std::string text_of_ulp(uint64_t ulp);

}  // namespace lockstep::train
