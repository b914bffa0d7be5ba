// Sums in one fixed binary tree over ranks, by recursive halving with nearest neighbours first, then an
// all-gather the same way back (Thakur, Rabenseifner, Gropp, "Optimization of collective communication
// operations in MPICH", 2005, with the order of distances turned round). Small vectors: recursive doubling.
#pragma once

#include <memory>

#include "comm/algorithm.h"
#include "comm/mpi.h"
#include "comm/patience.h"
#include "comm/roll_call.h"
#include "core/huge_buffer.h"

namespace lockstep::comm {

class SharedMemory;

/// Ranks 2k and 2k+1 add first, then pairs of pairs: every element is ((0+1)+(2+3))+... whatever its place,
/// the message's size, the path. A power of two of ranks.
class MpiExact final : public Algorithm {
 public:
  /// For all ranks together.
  MpiExact(World& world, const CollectiveOptions& options);
  ~MpiExact() override;

  void run(const Operation& operation, uint64_t number) override;
  void idle() override { roll_call_.answer(); }
  Slice slice(size_t count, int device) const override { return tree_segment(count, device, size_); }
  void watch(const std::atomic<bool>* aborted) override { patience_.watch(aborted); }

 private:
  void all_reduce_small(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void gather(const Operation& operation);
  /// Sends `out` and receives `in` at once, in chunks; received chunks are added to `in`, or replace it.
  enum class Arrival { add, replace };
  void exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in, Arrival arrival,
                Dtype dtype);

  const int rank_, size_;
  Communicator comm_;
  RollCall roll_call_;
  Patience patience_;
  HugeBuffer scratch_;
  std::unique_ptr<SharedMemory> shared_;  // null: every distance goes through MPI
};

}  // namespace lockstep::comm
