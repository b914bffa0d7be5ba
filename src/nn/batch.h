// One micro-batch on the host, as the loader hands it to a program.
#pragma once

#include <cstdint>

namespace lockstep::nn {

/// A view; whoever made it says how long it lives.
struct Batch {
  int64_t count = 0;                  ///< samples present; 0 for an empty shard
  const float* images = nullptr;      ///< [count, C, H, W], normalised
  const int32_t* labels = nullptr;    ///< [count]
  const uint64_t* samples = nullptr;  ///< [count], rows in the data set: they key dropout and augmentation
  /// [count], or null: every sample weighs 1. What weighs 0 is in no loss, gradient or count, only in batch
  /// norm's statistics.
  const float* weights = nullptr;
};

}  // namespace lockstep::nn
