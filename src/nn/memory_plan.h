// Places buffers with known lifetimes in one arena so that those alive at the same time never overlap.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::nn {

/// Alive from time `first` to time `last`, both included.
struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  ///< one a lifetime, aligned
  size_t bytes = 0;             ///< of the whole arena
  size_t lower_bound = 0;       ///< the largest sum alive at one time: no plan can be smaller
};

/// Greedy by size, each buffer into the best-fitting hole that its lifetime leaves (Pisarchyk and Lee,
/// "Efficient memory management for deep neural net inference", 2020).
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, size_t alignment = 64);

}  // namespace lockstep::nn
