// Counter-based random numbers: a value is a function of its key alone, so no thread, rank or restart changes
// what a sample sees. Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC
// 2011).
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

using Philox = std::array<uint32_t, 4>;

constexpr Philox philox(Philox counter, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// What a stream of random numbers is for. Two purposes never share a counter.
enum class Purpose : uint32_t { shuffle = 1, augment = 2, dropout = 3, init = 4, generate = 5 };

/// The stream of one (seed, time, sample, purpose, operator): `time` is the step for dropout and the epoch
/// for augmentation, `sample` is the row in the data set (up to 2^44), `op` tells apart up to 4096 users of
/// one purpose.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t time = 0;
  uint64_t sample = 0;
  Purpose purpose = Purpose::augment;
  uint32_t op = 0;
};

/// Words 4*block .. 4*block+3 of the stream.
constexpr Philox random_block(const RandomKey& key, uint32_t block) {
  uint32_t tag = (static_cast<uint32_t>(key.purpose) << 24) | ((key.op & 0xFFFu) << 12) |
                 static_cast<uint32_t>((key.sample >> 32) & 0xFFFu);
  return philox({block, static_cast<uint32_t>(key.sample), key.time, tag}, key.seed);
}

/// Uniform in [0, 1) with 24 bits.
constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Draws word after word from one stream.
class RandomStream {
 public:
  explicit RandomStream(const RandomKey& key) : key_(key) {}
  uint32_t next() {
    if (used_ == 4) words_ = random_block(key_, block_++), used_ = 0;
    return words_[used_++];
  }
  float next_uniform() { return uniform(next()); }
  /// Uniform in [0, n), n > 0, without modulo bias worth speaking of (multiply-shift).
  uint32_t next_below(uint32_t n) { return static_cast<uint32_t>((uint64_t{next()} * n) >> 32); }

 private:
  RandomKey key_;
  Philox words_{};
  uint32_t block_ = 0;
  int used_ = 4;
};

}  // namespace lockstep
