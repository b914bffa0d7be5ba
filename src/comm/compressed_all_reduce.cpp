#include "comm/compressed_all_reduce.h"

#include <algorithm>

#include "comm/half.h"

namespace lockstep::comm {

namespace {

// Elements: 1 MiB of fp32, and with it the scratch of three chunks 3 MiB.
constexpr size_t kChunk = size_t{256} << 10;
// Blocks stay in the first-level cache while they climb the tree.
constexpr size_t kBlock = 1024;
constexpr int kTag = 1;

// out[0, count) = the tree over `sources` at `at`, in fp32.
void sum_block(Dtype wire, float* out, std::span<const uint16_t* const> sources, size_t at, size_t count) {
  if (sources.size() == 1) return from_half(wire, out, sources[0] + at, count);
  alignas(64) float right[kBlock];
  const size_t half = sources.size() / 2;
  sum_block(wire, out, sources.first(half), at, count);
  sum_block(wire, right, sources.subspan(half), at, count);
  add(Dtype::f32, out, right, count * sizeof(float));
}

}  // namespace

CompressedAllReduce::CompressedAllReduce(const Communicator& comm, Patience& patience)
    : comm_(comm),
      patience_(patience),
      rank_(comm.rank()),
      size_(comm.size()),
      stride_((kChunk + size_ - 1) / size_),
      scratch_(chunks_.size() * (kChunk + size_ * stride_) * sizeof(uint16_t)),
      sources_(size_) {
  uint16_t* free = scratch_.as<uint16_t>().data();
  for (Chunk& chunk : chunks_) {
    chunk.halves = free;
    chunk.others = free + kChunk;
    chunk.sends.resize(size_, MPI_REQUEST_NULL);
    chunk.receives.resize(size_, MPI_REQUEST_NULL);
    free += kChunk + size_ * stride_;
  }
}

void CompressedAllReduce::run(const Operation& operation) {
  const std::span<float> x(static_cast<float*>(operation.data), operation.count);
  const size_t chunks = (x.size() + kChunk - 1) / kChunk;
  auto chunk = [&](size_t i) -> Chunk& { return chunks_[i % chunks_.size()]; };
  // While a chunk is summed, the next one is already on its way there and the last one on its way back.
  for (size_t i = 0; i < chunks + 2; ++i) {
    if (i < chunks) {
      chunk(i).data = x.subspan(i * kChunk, std::min(kChunk, x.size() - i * kChunk));
      scatter(chunk(i), operation.wire);
    }
    if (i >= 1 && i - 1 < chunks) reduce(chunk(i - 1), operation.wire);
    if (i >= 2) gather(chunk(i - 2), operation.wire);
  }
}

Slice CompressedAllReduce::segment(const Chunk& chunk, int rank) const {
  return {chunk.data.size() * rank / size_, chunk.data.size() * (rank + 1) / size_};
}

void CompressedAllReduce::scatter(Chunk& chunk, Dtype wire) {
  to_half(wire, chunk.halves, chunk.data.data(), chunk.data.size());
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ - step + size_) % size_;
    receive(chunk, from, chunk.others + from * stride_, segment(chunk, rank_).size());
    send(chunk, to, segment(chunk, to));
  }
}

void CompressedAllReduce::reduce(Chunk& chunk, Dtype wire) {
  wait(chunk);
  const Slice mine = segment(chunk, rank_);
  for (int r = 0; r < size_; ++r) sources_[r] = chunk.others + r * stride_;
  sources_[rank_] = chunk.halves + mine.begin;
  alignas(64) float sum[kBlock];
  for (size_t at = 0; at < mine.size(); at += kBlock) {
    const size_t count = std::min(kBlock, mine.size() - at);
    sum_block(wire, sum, sources_, at, count);
    to_half(wire, chunk.halves + mine.begin + at, sum, count);
  }
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ - step + size_) % size_;
    const Slice its = segment(chunk, from);
    receive(chunk, from, chunk.halves + its.begin, its.size());
    send(chunk, to, mine);
  }
}

void CompressedAllReduce::gather(Chunk& chunk, Dtype wire) {
  wait(chunk);
  from_half(wire, chunk.data.data(), chunk.halves, chunk.data.size());
}

// Nobody sends an empty segment, nobody waits for one: a vector may have fewer elements than there are ranks.
void CompressedAllReduce::send(Chunk& chunk, int peer, Slice halves) {
  if (halves.size() == 0) return;
  check(MPI_Isend(chunk.halves + halves.begin, static_cast<int>(halves.size() * sizeof(uint16_t)), MPI_BYTE,
                  peer, kTag, comm_, &chunk.sends[peer]),
        "MPI_Isend");
}

void CompressedAllReduce::receive(Chunk& chunk, int peer, uint16_t* into, size_t count) {
  if (count == 0) return;
  check(MPI_Irecv(into, static_cast<int>(count * sizeof(uint16_t)), MPI_BYTE, peer, kTag, comm_,
                  &chunk.receives[peer]),
        "MPI_Irecv");
}

void CompressedAllReduce::wait(Chunk& chunk) {
  for (std::vector<MPI_Request>* requests : {&chunk.receives, &chunk.sends})
    for (int peer = 0; peer < size_; ++peer)
      patience_.until(peer, [&] {
        int done = 0;
        check(MPI_Test(&(*requests)[peer], &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
      });
}

}  // namespace lockstep::comm
