#include "train/shard_tree.h"

#include <bit>
#include <utility>

namespace lockstep::train {

// Where a device's part is no whole number of runs (reduction fast), its shards are runs of one.
static int64_t run_length(int64_t accumulation, int64_t shards) {
  const int64_t odd = shards >> std::countr_zero(static_cast<uint64_t>(shards));
  return accumulation % odd == 0 ? odd : 1;
}

ShardTree::ShardTree(device::Device& device, size_t floats, int64_t accumulation, int64_t shards)
    : device_(device), run_length_(run_length(accumulation, shards)) {
  if (run_length_ > 1) run_ = HugeBuffer(floats * sizeof(float));
  // The most runs held before the last one.
  for (int64_t held = accumulation / run_length_ - 1; held > 0; held >>= 1)
    levels_.emplace_back(floats * sizeof(float));
}

void ShardTree::add(std::span<float> values) {
  const auto held = [&](HugeBuffer& buffer) { return buffer.as<float>().first(values.size()); };
  const int64_t runs = added_ / run_length_, place = added_ % run_length_;
  ++added_;
  if (place + 1 < run_length_) {
    place == 0 ? device_.copy(values, held(run_)) : device_.add(values, held(run_));
    return;
  }
  if (run_length_ > 1) device_.add(held(run_), values);
  const int carry = std::countr_one(static_cast<uint64_t>(runs));
  if (carry == 0) {
    device_.copy(values, held(levels_[0]));
  } else {
    for (int l = 0; l + 1 < carry; ++l) device_.add(held(levels_[l]), values);
    device_.add(values, held(levels_[carry - 1]));
    std::swap(levels_[carry - 1], levels_[carry]);
  }
}

void ShardTree::finish(std::span<float> values, size_t begin, size_t end) {
  const auto add = [&](HugeBuffer& buffer) {
    device_.add(buffer.as<float>().subspan(begin, end - begin), values.subspan(begin, end - begin));
  };
  if (run_length_ > 1) add(run_);
  for (size_t l = 0; l < levels_.size(); ++l)
    if (added_ / run_length_ >> l & 1) add(levels_[l]);
}

size_t ShardTree::bytes() const {
  size_t bytes = run_.bytes();
  for (const HugeBuffer& level : levels_) bytes += level.bytes();
  return bytes;
}

}  // namespace lockstep::train
