// The lower levels of the exact tree, between ranks of one host, through memory that they share.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/algorithm.h"
#include "comm/mpi.h"
#include "comm/patience.h"

namespace lockstep::comm {

/// An MPI shared-memory window with its owner.
class SharedWindow {
 public:
  SharedWindow(MPI_Comm comm, size_t bytes_a_rank);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  static constexpr size_t kAlignment = 64;
  /// Aligned to kAlignment.
  std::byte* of(int rank) const;

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

/// Aligned neighbours [k*L, (k+1)*L) on one host. Each rank has a mailbox of two slots in the window; a rank
/// writes only its own and reads the others'. Two counters a rank, published and consumed, are all the
/// synchronisation: a slot is written again once all have consumed what it held. Sums are formed from the
/// mailboxes in tree order: the same bits as the path through MPI, one copy and no message.
class SharedMemory {
 public:
  /// For all ranks together. Null on every rank when no two neighbours share a host. `patience` must outlive
  /// it.
  static std::unique_ptr<SharedMemory> over_neighbours(World& world, Patience& patience, int max_neighbours);

  int size() const { return size_; }
  /// Each rank ends with the neighbours' sum in tree_segment(count, rank, size()).
  void reduce_scatter(const Operation& operation);
  /// The way back: each rank gives that segment, all end with all segments.
  void all_gather(const Operation& operation);
  /// The neighbours' sum of a whole vector of at most kSmall bytes: one synchronisation instead of two.
  void all_reduce_small(const Operation& operation);
  static constexpr size_t kSmall = size_t{16} << 10;

 private:
  struct Counters {
    alignas(64) std::atomic<uint64_t> published;  // slots that this rank has filled
    alignas(64) std::atomic<uint64_t> consumed;   // rounds whose slots of the others this rank has read
  };
  static constexpr size_t kSlot = size_t{512} << 10;
  static constexpr size_t kMailbox = sizeof(Counters) + 2 * kSlot;

  SharedMemory(World& world, Patience& patience, Communicator neighbours);
  Counters& counters(int rank) const { return *reinterpret_cast<Counters*>(boxes_[rank]); }
  std::byte* slot(int rank, uint64_t round) const {
    return boxes_[rank] + sizeof(Counters) + round % 2 * kSlot;
  }

  /// Until the slot of `round` may be written again.
  void wait_free(uint64_t round);
  void publish(uint64_t round) { counters(me_).published.store(round + 1, std::memory_order_release); }
  void wait_published(int rank, uint64_t round);
  void consume(uint64_t round) { counters(me_).consumed.store(round + 1, std::memory_order_release); }
  /// target = the tree over all ranks' values: `mine` for this rank, the others' slots of `round` at
  /// `offset`.
  void sum(Dtype dtype, std::byte* target, uint64_t round, size_t offset, size_t bytes);

  Patience& patience_;
  Communicator neighbours_;
  const int me_, size_, first_rank_;
  SharedWindow window_;
  std::vector<std::byte*> boxes_;
  std::vector<const std::byte*> sources_;
  uint64_t round_ = 0;
};

}  // namespace lockstep::comm
