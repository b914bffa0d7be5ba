#include "comm/mpi_fast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "comm/nonblocking.h"
#include "comm/world.h"
#include "core/error.h"

namespace lockstep::comm {

MpiFast::MpiFast(World& world, const CollectiveOptions& options)
    : rank_(world.rank()),
      size_(world.size()),
      comm_(Communicator::duplicate(world.mpi()->control)),
      roll_call_(world),
      patience_(options.timeout, [this](int peer, double waited) { roll_call_.verdict(peer, waited); }),
      counts_(size_),
      starts_(size_),
      compressed_(options.compress == Dtype::f32 ? nullptr
                                                 : std::make_unique<CompressedAllReduce>(comm_, patience_)) {
  patience_.on_tick([this] { roll_call_.answer(); });
}

Slice MpiFast::slice(size_t count, int device) const {
  return {count * device / size_, count * (device + 1) / size_};
}

void MpiFast::run(const Operation& operation, uint64_t number) {
  roll_call_.enter(operation, number);
  using Kind = Operation::Kind;
  switch (operation.kind) {
    case Kind::all_reduce:
      all_reduce(operation);
      break;
    case Kind::reduce:
      reduce(operation);
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

static MPI_Datatype mpi_type(Dtype dtype) { return dtype == Dtype::f64 ? MPI_DOUBLE : MPI_FLOAT; }

// The library's temporary is as large as its message: small pieces keep it in the cache and in the heap
// (docs/communication.md).
static constexpr size_t kPiece = size_t{1} << 20;  // elements

void MpiFast::all_reduce(const Operation& operation) {
  if (operation.compressed()) {
    if (!compressed_)
      throw std::logic_error("all_reduce in half precision without CollectiveOptions::compress");
    return compressed_->run(operation);
  }
  auto* data = static_cast<std::byte*>(operation.data);
  for (size_t at = 0; at < operation.count; at += kPiece) {
    MPI_Request request;
    check(MPI_Iallreduce(MPI_IN_PLACE, data + at * size_of(operation.dtype),
                         static_cast<int>(std::min(kPiece, operation.count - at)), mpi_type(operation.dtype),
                         MPI_SUM, comm_, &request),
          "MPI_Iallreduce");
    finish(request, patience_);
  }
}

void MpiFast::reduce(const Operation& operation) {
  auto* data = static_cast<std::byte*>(operation.data);
  for (size_t at = 0; at < operation.count; at += kPiece) {
    std::byte* piece = data + at * size_of(operation.dtype);
    MPI_Request request;
    check(MPI_Ireduce(rank_ == operation.root ? MPI_IN_PLACE : piece, piece,
                      static_cast<int>(std::min(kPiece, operation.count - at)), mpi_type(operation.dtype),
                      MPI_SUM, operation.root, comm_, &request),
          "MPI_Ireduce");
    finish(request, patience_);
  }
}

void MpiFast::layout(size_t count) {
  if (count > static_cast<size_t>(std::numeric_limits<int>::max()))
    throw std::length_error(fmt::format("'{}' elements in one reduce_scatter or all_gather of MPI", count));
  for (int d = 0; d < size_; ++d) {
    counts_[d] = static_cast<int>(slice(count, d).size());
    starts_[d] = static_cast<int>(slice(count, d).begin);
  }
}

void MpiFast::reduce_scatter(const Operation& operation) {
  layout(operation.count);
  MPI_Request request;
  check(MPI_Ireduce_scatter(MPI_IN_PLACE, operation.data, counts_.data(), mpi_type(operation.dtype), MPI_SUM,
                            comm_, &request),
        "MPI_Ireduce_scatter");
  finish(request, patience_);
  // In place, MPI leaves the result at the start of the buffer.
  auto* data = static_cast<std::byte*>(operation.data);
  const size_t size = size_of(operation.dtype);
  if (counts_[rank_] > 0) std::memmove(data + starts_[rank_] * size, data, counts_[rank_] * size);
}

void MpiFast::all_gather(const Operation& operation) {
  layout(operation.count);
  MPI_Request request;
  check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, operation.data, counts_.data(), starts_.data(),
                        mpi_type(operation.dtype), comm_, &request),
        "MPI_Iallgatherv");
  finish(request, patience_);
}

}  // namespace lockstep::comm
