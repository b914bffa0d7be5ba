// The sum of a device's shards in one fixed binary tree, as a binary counter of partial sums.
#pragma once

#include <span>
#include <vector>

#include "core/huge_buffer.h"
#include "device/device.h"

namespace lockstep::train {

/// For shards 0 .. A-1 of `floats` values each: ((s0 + s1) + (s2 + s3)) + ..., with about log2(A) buffers.
/// The tree over the devices goes on where this one ends, so the order of a sum depends on the number of
/// shards alone.
class ShardTree {
 public:
  ShardTree(device::Device& device, size_t floats, int64_t shards);

  void begin() { added_ = 0; }
  /// Adds a shard that is not the last. May change `values`.
  void add(std::span<float> values);
  /// The last shard, a range at a time: adds to values[begin, end) what the counter holds for it.
  void finish(std::span<float> values, size_t begin, size_t end);

 private:
  device::Device& device_;
  int64_t added_ = 0;
  std::vector<HugeBuffer> levels_;  ///< level l is the sum of 2^l shards when bit l of added_ is set
};

}  // namespace lockstep::train
