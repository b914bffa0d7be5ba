// One micro-batch on the host, as the loader hands it to a program.
#pragma once

#include <cstdint>

namespace lockstep::nn {

/// A view; whoever made it says how long it lives.
struct Batch {
  int64_t count = 0;                   ///< samples present; 0 for an empty shard
  const float* images = nullptr;       ///< [count, C, H, W], normalised
  const int32_t* labels = nullptr;     ///< [count]
  const uint64_t* samples = nullptr;   ///< [count], rows in the data set: they key dropout and augmentation
  const float* weights = nullptr;      ///< [count], or null: every sample weighs 1
};

}  // namespace lockstep::nn
