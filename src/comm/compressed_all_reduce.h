// Sums of fp32 whose messages are in half precision: half the bytes between ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/algorithm.h"
#include "comm/mpi.h"
#include "comm/patience.h"
#include "core/huge_buffer.h"

namespace lockstep::comm {

/// Each rank owns a segment: it receives the others' rounded contributions to it, sums them in fp32 in tree
/// order over ranks, rounds the sum, and sends it to all. A ring or recursive halving would round the partial
/// sums of every hop; here each value is rounded once on the way there and once on the way back, at any
/// number of ranks.
class CompressedAllReduce {
 public:
  /// Both must outlive it.
  CompressedAllReduce(const Communicator& comm, Patience& patience);

  /// Of fp32, as Collective::all_reduce says.
  void run(const Operation& operation);

 private:
  /// A piece of the vector on its way. Three are: one each going out, being summed and coming back.
  struct Chunk {
    std::span<float> data;
    uint16_t* halves = nullptr;  ///< of data: first this rank's, then the sum's
    uint16_t* others = nullptr;  ///< the other ranks' for this rank's segment, `stride_` for each
    std::vector<MPI_Request> sends, receives;  ///< by rank
  };

  void scatter(Chunk& chunk, Dtype wire);
  void reduce(Chunk& chunk, Dtype wire);
  void gather(Chunk& chunk, Dtype wire);

  Slice segment(const Chunk& chunk, int rank) const;
  void send(Chunk& chunk, int peer, Slice halves);
  void receive(Chunk& chunk, int peer, uint16_t* into, size_t count);
  void wait(Chunk& chunk);

  const Communicator& comm_;
  Patience& patience_;
  const int rank_, size_;
  const size_t stride_;
  HugeBuffer scratch_;
  std::array<Chunk, 3> chunks_;
  std::vector<const uint16_t*> sources_;
};

}  // namespace lockstep::comm
