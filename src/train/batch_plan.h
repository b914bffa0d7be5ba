#pragma once

#include <cstdint>

namespace lockstep::train {

/// A step's samples, resolved for one number of devices: global = shards * micro, shards = devices *
/// accumulation.
struct BatchPlan {
  int64_t micro = 0;         ///< samples of a shard
  int64_t global = 0;        ///< samples of a step
  int64_t accumulation = 0;  ///< shards of a step on each device
  int64_t shards = 0;        ///< shards of a step
  bool world_dependent =
      false;  ///< another number of devices would give another global batch, so other results
};

}  // namespace lockstep::train
