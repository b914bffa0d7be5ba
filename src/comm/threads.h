// Collectives between the replicas of a process, and with them between the replicas of all ranks: the
// threads' level of the tree in shared memory, the ranks' level by whatever the ranks use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/algorithm.h"
#include "comm/patience.h"

namespace lockstep::comm {

class World;

/// What the replicas of one process share. Their communication threads meet in each operation: every one
/// shows its buffer, sums one segment of all buffers straight into replica 0's, and, once replica 0 has
/// brought in the other ranks, copies the result back. No element is copied but on the way back.
class ReplicaGroup {
 public:
  /// `ranks` is replica 0's way to the other ranks; null in a world of one.
  ReplicaGroup(World& world, int replicas, std::unique_ptr<Algorithm> ranks);

 private:
  friend class ReplicaAlgorithm;
  struct alignas(64) Member {
    void* data = nullptr;                ///< of the operation in hand
    std::atomic<uint64_t> arrivals = 0;  ///< meetings that the member has come to
  };
  /// From now on nobody waits for anybody; all throw the first cause, whoever of them is heard first.
  void fail(std::exception_ptr cause);

  World& world_;
  const int replicas_;
  const std::unique_ptr<Algorithm> ranks_;
  std::vector<Member> members_;
  std::mutex mutex_;
  std::exception_ptr cause_;  ///< guarded by mutex_ until failed_, then constant
  std::atomic<bool> failed_ = false;
};

/// One replica's part of a group, run by its communication thread.
class ReplicaAlgorithm final : public Algorithm {
 public:
  ReplicaAlgorithm(std::shared_ptr<ReplicaGroup> group, int replica, double timeout);

  void run(const Operation& operation, uint64_t number) override;
  void idle() override;
  /// The replica's segment of its rank's part.
  Slice slice(size_t count, int device) const override;
  void watch(const std::atomic<bool>* aborted) override;
  void abort() override;

 private:
  void perform(const Operation& operation, uint64_t number);
  void all_reduce(const Operation& operation, uint64_t number);
  void reduce(const Operation& operation, uint64_t number);
  void reduce_scatter(const Operation& operation, uint64_t number);
  void all_gather(const Operation& operation, uint64_t number);
  void broadcast(const Operation& operation, uint64_t number);
  /// The sum of all replicas in this one's segment of `into`.
  void sum_segment(const Operation& operation, std::byte* into);
  /// All members have come here: what they wrote before is seen by all.
  void meet();
  void between_ranks(const Operation& operation, uint64_t number);
  void segments_between_ranks(const Operation& operation, uint64_t number);
  bool leads() const { return me_ == 0; }
  std::byte* data_of(int replica) const { return static_cast<std::byte*>(group_->members_[replica].data); }

  const std::shared_ptr<ReplicaGroup> group_;
  const int me_, size_;
  Patience patience_;
  uint64_t meetings_ = 0, number_ = 0;
  std::vector<const std::byte*> sources_;
};

}  // namespace lockstep::comm
