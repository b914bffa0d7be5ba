// What the communication thread runs: the seam between the queue (worker.h) and the ways to move and sum
// bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/collective.h"

namespace lockstep::comm {

/// Only the communication thread calls run() and idle(); both may throw.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  /// Completes `operation`; `number` counts operations from 1.
  virtual void run(const Operation& operation, uint64_t number) = 0;
  /// Called some ten times a second while there is nothing to run.
  virtual void idle() {}
  /// See Collective::slice.
  virtual Slice slice(size_t count, int device) const = 0;
  /// Another thread sets it to make a waiting run() throw; set before the first run().
  virtual void watch(const std::atomic<bool>* aborted) = 0;
  /// The same for whoever waits for this one within the process; called by any thread.
  virtual void abort() {}
};

/// What `rank` holds of `count` elements after halvings over distances 1, 2, ... below `distance`: all ranks
/// that are equal in the bits below `distance` hold the same.
Slice tree_segment(size_t count, int rank, int distance);

/// a[i] += b[i].
void add(Dtype dtype, void* a, const void* b, size_t bytes);
/// sum[i] = a[i] + b[i]; sum may be a or b.
void add_into(Dtype dtype, void* sum, const void* a, const void* b, size_t bytes);
/// sum = ((s0 + s1) + (s2 + s3)) + ... over `sources`, any number of them; sum may be one of them.
void tree_sum(Dtype dtype, std::byte* sum, std::span<const std::byte* const> sources, size_t bytes);

}  // namespace lockstep::comm
