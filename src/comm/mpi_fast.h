// The library's own collectives, at any number of ranks; the order of its sums, and so the last bits, are its
// own.
#pragma once

#include <memory>

#include "comm/algorithm.h"
#include "comm/compressed_all_reduce.h"
#include "comm/mpi.h"
#include "comm/patience.h"
#include "comm/roll_call.h"

namespace lockstep::comm {

class MpiFast final : public Algorithm {
 public:
  /// For all ranks together.
  MpiFast(World& world, const CollectiveOptions& options);

  void run(const Operation& operation, uint64_t number) override;
  void idle() override { roll_call_.answer(); }
  Slice slice(size_t count, int device) const override;
  void watch(const std::atomic<bool>* aborted) override { patience_.watch(aborted); }

 private:
  void all_reduce(const Operation& operation);
  void reduce(const Operation& operation);
  void reduce_scatter(const Operation& operation);
  void all_gather(const Operation& operation);
  void layout(size_t count);  // fills counts_ and starts_

  const int rank_, size_;
  Communicator comm_;
  RollCall roll_call_;
  Patience patience_;
  std::vector<int> counts_, starts_;
  std::unique_ptr<CompressedAllReduce> compressed_;  // null when nothing is
};

}  // namespace lockstep::comm
