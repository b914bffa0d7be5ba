#include "comm/mpi_exact.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "comm/nonblocking.h"
#include "comm/shared_memory.h"
#include "comm/world.h"

namespace lockstep::comm {

namespace {

// A chunk stays in the cache between its arrival and its addition; several in flight hide the latency of
// each.
constexpr size_t kChunk = size_t{256} << 10;
constexpr size_t kDepth = 4;
// Up to here log2(D) exchanges of the whole vector cost less than twice as many of its parts.
constexpr size_t kSmall = SharedMemory::kSmall;
constexpr int kTag = 1;

std::span<std::byte> bytes_of(const Operation& operation, Slice slice) {
  const size_t size = size_of(operation.dtype);
  return {static_cast<std::byte*>(operation.data) + slice.begin * size, slice.size() * size};
}

}  // namespace

MpiExact::MpiExact(World& world, const CollectiveOptions& options)
    : rank_(world.rank()),
      size_(world.size()),
      comm_(Communicator::duplicate(world.mpi()->control)),
      roll_call_(world),
      patience_(options.timeout, [this](int peer, double waited) { roll_call_.verdict(peer, waited); }),
      scratch_(kChunk * kDepth),
      shared_(options.shared_memory ? SharedMemory::over_neighbours(world, patience_, options.max_neighbours)
                                    : nullptr) {
  patience_.on_tick([this] { roll_call_.answer(); });
}

MpiExact::~MpiExact() = default;

Slice tree_segment(size_t count, int rank, int distance) {
  Slice s{0, count};
  for (int d = 1; d < distance; d *= 2) {
    size_t middle = s.begin + s.size() / 2;
    (rank & d ? s.begin : s.end) = middle;
  }
  return s;
}

void MpiExact::run(const Operation& operation, uint64_t number) {
  if (operation.compressed()) throw std::logic_error("all_reduce in half precision, which exact refuses");
  roll_call_.enter(operation, number);
  using Kind = Operation::Kind;
  switch (operation.kind) {
    case Kind::all_reduce:
      if (operation.bytes() <= kSmall) {
        all_reduce_small(operation);
      } else {
        reduce_scatter(operation);
        all_gather(operation);
      }
      break;
    case Kind::reduce:
      reduce_scatter(operation);
      gather(operation);
      break;
    case Kind::reduce_scatter:
      reduce_scatter(operation);
      break;
    case Kind::all_gather:
      all_gather(operation);
      break;
    case Kind::broadcast:
      broadcast(operation, comm_, patience_);
      break;
    case Kind::barrier:
      barrier(comm_, patience_);
      break;
  }
  roll_call_.leave();
}

void MpiExact::all_reduce_small(const Operation& operation) {
  int d = 1;
  if (shared_) {
    shared_->all_reduce_small(operation);
    d = shared_->size();
  }
  auto all = bytes_of(operation, {0, operation.count});
  for (; d < size_; d *= 2) exchange(rank_ ^ d, all, all, Arrival::add, operation.dtype);
}

void MpiExact::reduce_scatter(const Operation& operation) {
  int d = 1;
  if (shared_) {
    shared_->reduce_scatter(operation);
    d = shared_->size();
  }
  for (; d < size_; d *= 2) {
    const int peer = rank_ ^ d;
    exchange(peer, bytes_of(operation, tree_segment(operation.count, peer, 2 * d)),
             bytes_of(operation, tree_segment(operation.count, rank_, 2 * d)), Arrival::add, operation.dtype);
  }
}

void MpiExact::all_gather(const Operation& operation) {
  const int local = shared_ ? shared_->size() : 1;
  for (int d = size_ / 2; d >= local; d /= 2) {
    const int peer = rank_ ^ d;
    exchange(peer, bytes_of(operation, tree_segment(operation.count, rank_, 2 * d)),
             bytes_of(operation, tree_segment(operation.count, peer, 2 * d)), Arrival::replace,
             operation.dtype);
  }
  if (shared_) shared_->all_gather(operation);
}

// The way of all_gather, but only towards the root.
void MpiExact::gather(const Operation& operation) {
  const int local = shared_ ? shared_->size() : 1, away = rank_ ^ operation.root;
  for (int d = size_ / 2; d >= local; d /= 2) {
    if (away >= 2 * d) continue;  // has given what it had
    const int peer = rank_ ^ d;
    const bool gives = away & d;
    exchange(peer, bytes_of(operation, gives ? tree_segment(operation.count, rank_, 2 * d) : Slice()),
             bytes_of(operation, gives ? Slice() : tree_segment(operation.count, peer, 2 * d)),
             Arrival::replace, operation.dtype);
  }
  if (shared_) shared_->all_gather(operation);
}

void MpiExact::exchange(int peer, std::span<const std::byte> out, std::span<std::byte> in, Arrival arrival,
                        Dtype dtype) {
  auto piece = [](auto span, size_t i) {
    return span.subspan(i * kChunk, std::min(kChunk, span.size() - i * kChunk));
  };
  const size_t sends = (out.size() + kChunk - 1) / kChunk, receives = (in.size() + kChunk - 1) / kChunk;
  std::array<MPI_Request, kDepth> sending, receiving;
  size_t sent = 0, send_posted = 0, received = 0, receive_posted = 0;

  auto target = [&](size_t i) {
    return arrival == Arrival::add ? scratch_.data() + i % kDepth * kChunk : piece(in, i).data();
  };
  auto complete = [](MPI_Request& request) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  };
  // out and in may be the same vector (recursive doubling): nothing is added to before it is sent.
  const bool same = !out.empty() && out.data() == in.data();

  patience_.progress();
  while (sent < sends || received < receives) {
    for (; receive_posted < receives && receive_posted < received + kDepth; ++receive_posted)
      check(MPI_Irecv(target(receive_posted), static_cast<int>(piece(in, receive_posted).size()), MPI_BYTE,
                      peer, kTag, comm_, &receiving[receive_posted % kDepth]),
            "MPI_Irecv");
    for (; send_posted < sends && send_posted < sent + kDepth; ++send_posted)
      check(MPI_Isend(piece(out, send_posted).data(), static_cast<int>(piece(out, send_posted).size()),
                      MPI_BYTE, peer, kTag, comm_, &sending[send_posted % kDepth]),
            "MPI_Isend");
    bool moved = false;
    if (sent < send_posted && complete(sending[sent % kDepth])) ++sent, moved = true;
    if (received < receive_posted && (!same || received < sent) && complete(receiving[received % kDepth])) {
      auto chunk = piece(in, received);
      if (arrival == Arrival::add) add(dtype, chunk.data(), target(received), chunk.size());
      ++received, moved = true;
    }
    moved ? patience_.progress() : patience_.pause(peer);
  }
}

}  // namespace lockstep::comm
