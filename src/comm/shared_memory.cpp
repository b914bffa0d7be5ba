#include "comm/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "comm/world.h"

namespace lockstep::comm {

SharedWindow::SharedWindow(MPI_Comm comm, size_t bytes_a_rank) {
  void* mine = nullptr;
  check(MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes_a_rank + kAlignment), 1, MPI_INFO_NULL, comm,
                                &mine, &window_),
        "MPI_Win_allocate_shared");
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
}

SharedWindow::~SharedWindow() {
  if (std::uncaught_exceptions() > 0) return;  // freeing is collective
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

std::byte* SharedWindow::of(int rank) const {
  MPI_Aint size;
  int unit;
  void* base = nullptr;
  check(MPI_Win_shared_query(window_, rank, &size, &unit, &base), "MPI_Win_shared_query");
  // Open MPI aligns to 8 bytes only; pages are mapped alike in all ranks, so all round to the same place.
  const auto address = reinterpret_cast<uintptr_t>(base);
  return static_cast<std::byte*>(base) + (kAlignment - address % kAlignment) % kAlignment;
}

std::unique_ptr<SharedMemory> SharedMemory::over_neighbours(World& world, Patience& patience,
                                                            int max_neighbours) {
  Communicator local = Communicator::local(world.mpi()->control);
  // A host is named by its lowest rank.
  int host = world.rank();
  check(MPI_Allreduce(MPI_IN_PLACE, &host, 1, MPI_INT, MPI_MIN, local), "MPI_Allreduce");
  const std::vector<int> host_of = world.all_gather_values(host);
  auto aligned = [&](int width) {
    for (int r = 0; r < world.size(); ++r)
      if (host_of[r] != host_of[r / width * width]) return false;
    return true;
  };
  int width = 1;
  while (2 * width <= std::min(world.size(), max_neighbours) && aligned(2 * width)) width *= 2;
  if (width == 1) return nullptr;
  MPI_Comm neighbours;
  check(MPI_Comm_split(world.mpi()->control, world.rank() / width, world.rank(), &neighbours),
        "MPI_Comm_split");
  return std::unique_ptr<SharedMemory>(new SharedMemory(world, patience, Communicator(neighbours)));
}

SharedMemory::SharedMemory(World& world, Patience& patience, Communicator neighbours)
    : patience_(patience),
      neighbours_(std::move(neighbours)),
      me_(neighbours_.rank()),
      size_(neighbours_.size()),
      first_rank_(world.rank() - me_),
      window_(neighbours_, kMailbox),
      boxes_(size_),
      sources_(size_) {
  for (int r = 0; r < size_; ++r) boxes_[r] = window_.of(r);
  new (boxes_[me_]) Counters{};
  world.barrier();  // nobody reads a counter before it exists
}

void SharedMemory::wait_free(uint64_t round) {
  if (round < 2) return;
  for (int r = 0; r < size_; ++r)
    patience_.until(first_rank_ + r, [&] {
      return r == me_ || counters(r).consumed.load(std::memory_order_acquire) >= round - 1;
    });
}

void SharedMemory::wait_published(int rank, uint64_t round) {
  patience_.until(first_rank_ + rank,
                  [&] { return counters(rank).published.load(std::memory_order_acquire) > round; });
}

void SharedMemory::reduce_scatter(const Operation& operation) {
  const size_t unit = size_of(operation.dtype);
  const size_t part = kSlot / size_ / 64 * 64 / unit;  // elements of one owner in a slot
  auto* data = static_cast<std::byte*>(operation.data);
  auto piece = [&](int owner, size_t i) {
    Slice s = tree_segment(operation.count, owner, size_);
    s.begin = std::min(s.end, s.begin + i * part);
    s.end = std::min(s.end, s.begin + part);
    return s;
  };
  const size_t rounds = (operation.count / size_ + 1 + part - 1) / part;  // a segment has at most count/L + 1
  const uint64_t base = round_;
  auto reduce = [&](size_t i) {
    Slice mine = piece(me_, i);
    sum(operation.dtype, data + mine.begin * unit, base + i, me_ * part * unit, mine.size() * unit);
    consume(base + i);
  };
  for (size_t i = 0; i < rounds; ++i) {
    wait_free(base + i);
    for (int owner = 0; owner < size_; ++owner) {
      if (owner == me_) continue;
      Slice s = piece(owner, i);
      if (s.size())
        std::memcpy(slot(me_, base + i) + owner * part * unit, data + s.begin * unit, s.size() * unit);
    }
    publish(base + i);
    if (i > 0) reduce(i - 1);
  }
  reduce(rounds - 1);
  round_ += rounds;
}

void SharedMemory::all_gather(const Operation& operation) {
  const size_t unit = size_of(operation.dtype);
  const size_t part = kSlot / unit;
  auto* data = static_cast<std::byte*>(operation.data);
  auto piece = [&](int owner, size_t i) {
    Slice s = tree_segment(operation.count, owner, size_);
    s.begin = std::min(s.end, s.begin + i * part);
    s.end = std::min(s.end, s.begin + part);
    return s;
  };
  const size_t rounds = (operation.count / size_ + 1 + part - 1) / part;
  const uint64_t base = round_;
  auto read = [&](size_t i) {
    for (int step = 1; step < size_; ++step) {
      const int owner = (me_ + step) % size_;
      wait_published(owner, base + i);
      Slice s = piece(owner, i);
      if (s.size()) std::memcpy(data + s.begin * unit, slot(owner, base + i), s.size() * unit);
    }
    consume(base + i);
  };
  for (size_t i = 0; i < rounds; ++i) {
    wait_free(base + i);
    Slice s = piece(me_, i);
    if (s.size()) std::memcpy(slot(me_, base + i), data + s.begin * unit, s.size() * unit);
    publish(base + i);
    if (i > 0) read(i - 1);
  }
  read(rounds - 1);
  round_ += rounds;
}

void SharedMemory::all_reduce_small(const Operation& operation) {
  wait_free(round_);
  auto* data = static_cast<std::byte*>(operation.data);
  if (operation.count) std::memcpy(slot(me_, round_), data, operation.bytes());
  publish(round_);
  sum(operation.dtype, data, round_, 0, operation.bytes());
  consume(round_);
  ++round_;
}

void SharedMemory::sum(Dtype dtype, std::byte* target, uint64_t round, size_t offset, size_t bytes) {
  for (int r = 0; r < size_; ++r)
    if (r != me_) wait_published(r, round);
  for (int r = 0; r < size_; ++r) sources_[r] = slot(r, round) + offset;
  sources_[me_] = target;
  tree_sum(dtype, target, sources_, bytes);
}

}  // namespace lockstep::comm
