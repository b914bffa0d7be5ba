// The batch arithmetic: global = shards * micro, shards = devices * accumulation.
#pragma once

#include <cstdint>

#include "train/batch_plan.h"
#include "train/options.h"

namespace lockstep::app {

inline constexpr int64_t kDefaultMicroBatch = 16;
inline constexpr int64_t kDefaultGlobalBatch = 128;  ///< 8 shards: the same steps on 1, 2, 4 and 8 devices

/// Any two of the three values, or one, fix the rest. Without batch.global and batch.accumulation each device
/// takes the largest power of two of shards with which the global batch fits into 128 samples, at least one.
/// Throws UserError with the arithmetic, and the values that would do, when it does not divide.
train::BatchPlan resolve_batch(const train::BatchOptions& batch, int64_t devices);

/// Exact reduction sums shards in one tree whose branches a power of two of devices can share out: throws
/// UserError, saying what would do, for another number of devices.
void check_exact(const train::BatchPlan& plan, int64_t devices);

}  // namespace lockstep::app
