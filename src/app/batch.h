// The batch arithmetic: global = shards * micro, shards = devices * accumulation.
#pragma once

#include <cstdint>

#include "train/options.h"

namespace lockstep::app {

/// A step's samples, resolved for one number of devices.
struct BatchPlan {
  int64_t micro = 0;         ///< samples of a shard
  int64_t global = 0;        ///< samples of a step
  int64_t accumulation = 0;  ///< shards of a step on each device
  int64_t shards = 0;        ///< shards of a step
  bool world_dependent =
      false;  ///< another number of devices would give another global batch, so other results
};

inline constexpr int64_t kDefaultMicroBatch = 16;
inline constexpr int64_t kDefaultGlobalBatch = 128;  ///< 8 shards: the same steps on 1, 2, 4 and 8 devices

/// Any two of the three values, or one, fix the rest. Without batch.global and batch.accumulation the global
/// batch is the largest that fits into 128 samples, at least one shard a device. Throws UserError with the
/// arithmetic, and the values that would do, when it does not divide.
BatchPlan resolve_batch(const train::BatchOptions& batch, int64_t devices);

/// Exact reduction sums shards in a binary tree: throws UserError, saying what would do, unless both the
/// shards and the devices are powers of two.
void check_exact(const BatchPlan& plan, int64_t devices);

}  // namespace lockstep::app
