#include "data/order.h"

#include <algorithm>
#include <bit>

namespace lockstep::data {
namespace {

constexpr int kRounds = 6;

/// Purpose::shuffle has three users, told apart by RandomKey::op; the writer's own shuffle is a fourth
/// (writer.cpp).
enum ShuffleUser : uint32_t { kSamples = 0, kChunks = 1, kWindow = 2 };

uint32_t mix(uint32_t x) {  // the finaliser of MurmurHash3
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

RandomKey key(uint64_t seed, uint64_t epoch, ShuffleUser user, uint64_t window = 0) {
  return {seed, static_cast<uint32_t>(epoch), window, Purpose::shuffle, user};
}

}  // namespace

Permutation::Permutation(uint64_t n, const RandomKey& key) : n_(n) {
  if (n > 1) half_bits_ = (std::bit_width(n - 1) + 1) / 2;
  for (uint32_t block = 0; block < 2; ++block) {
    Philox words = random_block(key, block);
    std::copy(words.begin(), words.end(), keys_.begin() + 4 * block);
  }
}

uint64_t Permutation::encrypt(uint64_t x) const {
  const uint32_t mask = (1u << half_bits_) - 1;
  uint32_t left = static_cast<uint32_t>(x >> half_bits_), right = static_cast<uint32_t>(x) & mask;
  for (int round = 0; round < kRounds; ++round) {
    uint32_t next = left ^ (mix(right + keys_[round]) & mask);
    left = right;
    right = next;
  }
  return (uint64_t{left} << half_bits_) | right;
}

uint64_t Permutation::decrypt(uint64_t x) const {
  const uint32_t mask = (1u << half_bits_) - 1;
  uint32_t left = static_cast<uint32_t>(x >> half_bits_), right = static_cast<uint32_t>(x) & mask;
  for (int round = kRounds - 1; round >= 0; --round) {
    uint32_t previous = right ^ (mix(left + keys_[round]) & mask);
    right = left;
    left = previous;
  }
  return (uint64_t{left} << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  if (n_ <= 1) return 0;
  do index = encrypt(index);
  while (index >= n_);
  return index;
}

uint64_t Permutation::inverse(uint64_t value) const {
  if (n_ <= 1) return 0;
  do value = decrypt(value);
  while (value >= n_);
  return value;
}

uint64_t Order::row(uint64_t epoch, uint64_t position) const {
  if (!shuffle) return position;
  if (chunk_rows > 0 && chunk_rows < num_samples) return row_by_chunks(epoch, position);
  return Permutation(static_cast<uint64_t>(num_samples), key(seed, epoch, kSamples))(position);
}

uint64_t Order::row_by_chunks(uint64_t epoch, uint64_t position) const {
  const uint64_t n = static_cast<uint64_t>(num_samples), rows = static_cast<uint64_t>(chunk_rows);
  const uint64_t window = static_cast<uint64_t>(std::max<int64_t>(window_chunks, 1));
  const uint64_t chunks = (n + rows - 1) / rows, missing = chunks * rows - n;

  // The file's last chunk lacks `missing` rows; wherever it lands, the positions after it move up by as many.
  const Permutation chunk_at(chunks, key(seed, epoch, kChunks));
  const uint64_t short_slot = chunk_at.inverse(chunks - 1);
  auto start_of = [&](uint64_t slot) { return slot * rows - (slot > short_slot ? missing : 0); };
  auto slot_of = [&](uint64_t p) { return (p < start_of(short_slot + 1) ? p : p + missing) / rows; };

  const uint64_t w = slot_of(position) / window;
  const uint64_t first = start_of(w * window), end = start_of(std::min((w + 1) * window, chunks));
  const Permutation within(end - first, key(seed, epoch, kWindow, w));
  const uint64_t drawn = first + within(position - first);
  const uint64_t slot = slot_of(drawn);
  return chunk_at(slot) * rows + (drawn - start_of(slot));
}

int64_t Order::batches_per_epoch() const {
  return drop_last ? num_samples / global_batch : (num_samples + global_batch - 1) / global_batch;
}

int64_t Order::batch_size(int64_t batch) const {
  if (batch >= batches_per_epoch()) return 0;
  return std::min(global_batch, num_samples - batch * global_batch);
}

Cursor Order::next(Cursor cursor) const {
  if (++cursor.batch >= batches_per_epoch()) cursor = {cursor.epoch + 1, 0};
  return cursor;
}

}  // namespace lockstep::data
