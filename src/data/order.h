// Which sample comes when: a function of (seed, epoch, position) alone, in O(1) memory and time. Nothing here
// knows how many ranks, devices or threads there are.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "core/random.h"

namespace lockstep::data {

/// A keyed permutation of [0, n), n < 2^44: a six-round Feistel network on the next even power of two, with
/// cycle walking back into the range (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
/// 2002).
class Permutation {
 public:
  Permutation(uint64_t n, const RandomKey& key);
  uint64_t operator()(uint64_t index) const;
  uint64_t inverse(uint64_t value) const;

 private:
  uint64_t encrypt(uint64_t x) const;
  uint64_t decrypt(uint64_t x) const;
  uint64_t n_;
  int half_bits_ = 1;
  std::array<uint32_t, 8> keys_;
};

/// A point between two global batches: what a checkpoint stores to resume exactly.
struct Cursor {
  uint64_t epoch = 0;
  int64_t batch = 0;  ///< global batches of the epoch already taken
  auto operator<=>(const Cursor&) const = default;
};

/// The order of an epoch. Global batch b is positions [b*G, (b+1)*G), the last one cut short at N.
struct Order {
  int64_t num_samples = 0;   ///< N
  int64_t global_batch = 1;  ///< G
  uint64_t seed = 0;
  bool drop_last = false;  ///< leave out the last batch where it is partial
  bool shuffle = true;     ///< false: position p is row p

  /// For files stored in chunks that are dear to open: with chunk_rows > 0 the chunks are permuted, and then
  /// the samples within each window of that many chunks, so that a chunk is decoded about once an epoch.
  int64_t chunk_rows = 0;
  int64_t window_chunks = 1;

  /// Row of the data set at `position` in [0, N) of `epoch`.
  uint64_t row(uint64_t epoch, uint64_t position) const;
  int64_t batches_per_epoch() const;
  /// Samples of global batch `batch`: G, or what is left for the last; 0 past the end.
  int64_t batch_size(int64_t batch) const;
  /// The cursor after that batch.
  Cursor next(Cursor cursor) const;

 private:
  uint64_t row_by_chunks(uint64_t epoch, uint64_t position) const;
};

}  // namespace lockstep::data
