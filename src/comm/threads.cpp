#include "comm/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/world.h"
#include "core/error.h"

namespace lockstep::comm {

// Replica 0, which may itself wait for another rank, knows more: the others give it time to speak first.
static double patience_of(int replica, bool alone, double timeout) {
  return replica == 0 || alone ? timeout : timeout + 15;  // its roll call takes up to 12 s
}

// What `replica` of `replicas` sums.
static Slice segment(size_t count, int replica, int replicas) {
  return {count * replica / replicas, count * (replica + 1) / replicas};
}

ReplicaGroup::ReplicaGroup(World& world, int replicas, std::unique_ptr<Algorithm> ranks)
    : world_(world), replicas_(replicas), ranks_(std::move(ranks)), members_(replicas) {}

void ReplicaGroup::fail(std::exception_ptr cause) {
  std::lock_guard lock(mutex_);
  if (!cause_) cause_ = std::move(cause);
  failed_.store(true, std::memory_order_release);
}

ReplicaAlgorithm::ReplicaAlgorithm(std::shared_ptr<ReplicaGroup> group, int replica, double timeout)
    : group_(std::move(group)),
      me_(replica),
      size_(group_->replicas_),
      patience_(patience_of(replica, !group_->ranks_, timeout),
                [this](int peer, double waited) {
                  throw ClusterError(
                      fmt::format("replica '{}' of {} waited '{}' s for replica '{}' in operation '{}'", me_,
                                  group_->world_.name_of(group_->world_.rank()), text_of_wait(waited), peer,
                                  number_),
                      "that replica hangs, or its step takes longer than that",
                      "look at its last message; raise parallel.timeout if a step may take that long");
                }),
      sources_(size_) {
  patience_.on_tick([this] { idle(); });
}

void ReplicaAlgorithm::watch(const std::atomic<bool>* aborted) {
  patience_.watch(aborted);
  if (leads() && group_->ranks_) group_->ranks_->watch(aborted);
}

void ReplicaAlgorithm::abort() {
  group_->fail(std::make_exception_ptr(ClusterError("the collective operation was abandoned",
                                                    "another replica of this rank gave up",
                                                    "look at the message before")));
}

void ReplicaAlgorithm::idle() {
  if (leads() && group_->ranks_) group_->ranks_->idle();
}

Slice ReplicaAlgorithm::slice(size_t count, int device) const {
  const Slice mine = segment(count, device % size_, size_);
  if (!group_->ranks_) return mine;
  const Slice part = group_->ranks_->slice(mine.size(), device / size_);
  return {mine.begin + part.begin, mine.begin + part.end};
}

void ReplicaAlgorithm::meet() {
  group_->members_[me_].arrivals.store(++meetings_, std::memory_order_release);
  for (int r = 0; r < size_; ++r)
    patience_.until(r, [&] {
      const ReplicaGroup::Member& other = group_->members_[r];
      if (other.arrivals.load(std::memory_order_acquire) >= meetings_) return true;
      if (group_->failed_.load(std::memory_order_acquire)) std::rethrow_exception(group_->cause_);
      return false;
    });
}

void ReplicaAlgorithm::run(const Operation& operation, uint64_t number) {
  number_ = number;
  group_->members_[me_].data = operation.data;
  try {
    perform(operation, number);
  } catch (...) {
    group_->fail(std::current_exception());
    throw;
  }
}

void ReplicaAlgorithm::perform(const Operation& operation, uint64_t number) {
  using Kind = Operation::Kind;
  meet();  // every buffer is known, and complete
  switch (operation.kind) {
    case Kind::all_reduce:
      all_reduce(operation, number);
      break;
    case Kind::reduce:
      reduce(operation, number);
      break;
    case Kind::reduce_scatter:
      reduce_scatter(operation, number);
      break;
    case Kind::all_gather:
      all_gather(operation, number);
      break;
    case Kind::broadcast:
      broadcast(operation, number);
      break;
    case Kind::barrier:
      between_ranks(operation, number);
      break;
  }
  meet();  // nobody reads another's buffer any more
}

void ReplicaAlgorithm::between_ranks(const Operation& operation, uint64_t number) {
  if (!group_->ranks_) return;
  if (leads()) group_->ranks_->run(operation, number);
  meet();
}

void ReplicaAlgorithm::sum_segment(const Operation& operation, std::byte* into) {
  const size_t unit = size_of(operation.dtype);
  const Slice mine = segment(operation.count, me_, size_);
  for (int r = 0; r < size_; ++r) sources_[r] = data_of(r) + mine.begin * unit;
  tree_sum(operation.dtype, into + mine.begin * unit, sources_, mine.size() * unit);
}

// Into the buffer of the root's replica, on every rank.
void ReplicaAlgorithm::reduce(const Operation& operation, uint64_t number) {
  Operation all = operation;
  all.data = data_of(operation.root % size_);
  all.root = operation.root / size_;
  sum_segment(operation, static_cast<std::byte*>(all.data));
  meet();
  between_ranks(all, number);
}

void ReplicaAlgorithm::all_reduce(const Operation& operation, uint64_t number) {
  reduce(operation, number);  // the root is replica 0
  if (!leads() && operation.count) std::memcpy(operation.data, data_of(0), operation.bytes());
}

// Replica 0 speaks for each replica's segment in turn.
void ReplicaAlgorithm::segments_between_ranks(const Operation& operation, uint64_t number) {
  if (!group_->ranks_) return;
  if (leads())
    for (int r = 0; r < size_; ++r) {
      const Slice its = segment(operation.count, r, size_);
      Operation part = operation;
      part.data = data_of(r) + its.begin * size_of(operation.dtype);
      part.count = its.size();
      group_->ranks_->run(part, number);
    }
  meet();
}

void ReplicaAlgorithm::reduce_scatter(const Operation& operation, uint64_t number) {
  sum_segment(operation, static_cast<std::byte*>(operation.data));
  meet();
  segments_between_ranks(operation, number);
}

void ReplicaAlgorithm::all_gather(const Operation& operation, uint64_t number) {
  segments_between_ranks(operation, number);
  const size_t unit = size_of(operation.dtype);
  for (int r = 0; r < size_; ++r) {
    const Slice its = segment(operation.count, r, size_);
    if (r != me_ && its.size())
      std::memcpy(data_of(me_) + its.begin * unit, data_of(r) + its.begin * unit, its.size() * unit);
  }
}

void ReplicaAlgorithm::broadcast(const Operation& operation, uint64_t number) {
  const int replica = operation.root % size_;
  Operation all = operation;
  all.data = data_of(replica);
  all.root = operation.root / size_;
  between_ranks(all, number);
  if (me_ != replica && operation.count) std::memcpy(operation.data, data_of(replica), operation.bytes());
}

}  // namespace lockstep::comm
