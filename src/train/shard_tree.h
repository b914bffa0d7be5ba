// The sum of a device's shards in one fixed tree, as a binary counter of partial sums.
#pragma once

#include <span>
#include <vector>

#include "core/huge_buffer.h"
#include "device/device.h"

namespace lockstep::train {

/// The tree over S = q * 2^k shards, q odd: q neighbours each one after the other, (s0 + s1) + s2 for 3, then
/// those sums by pairs, ((r0 + r1) + (r2 + r3)) + .... A device that takes q * 2^j of the shards in a row
/// holds a whole branch of it, with about j buffers, and the tree over a power of two of devices goes on
/// where this one ends: the order of a sum depends on S alone.
class ShardTree {
 public:
  /// A device's part: `accumulation` shards of `floats` values each, of `shards` in all.
  ShardTree(device::Device& device, size_t floats, int64_t accumulation, int64_t shards);

  void begin() { added_ = 0; }
  /// Adds a shard that is not the last. May change `values`.
  void add(std::span<float> values);
  /// The last shard, a range at a time: adds to values[begin, end) what is held for it.
  void finish(std::span<float> values, size_t begin, size_t end);

  size_t bytes() const;

 private:
  device::Device& device_;
  const int64_t run_length_;  ///< q
  int64_t added_ = 0;
  HugeBuffer run_;                  ///< sum of the run in hand
  std::vector<HugeBuffer> levels_;  ///< level l is the sum of 2^l runs when bit l of the runs added is set
};

}  // namespace lockstep::train
