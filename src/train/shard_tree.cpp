#include "train/shard_tree.h"

#include <bit>

namespace lockstep::train {

ShardTree::ShardTree(device::Device& device, size_t floats, int64_t shards) : device_(device) {
  // The largest count held before the last shard is shards - 1.
  for (int64_t held = shards - 1; held > 0; held >>= 1) levels_.emplace_back(floats * sizeof(float));
}

void ShardTree::add(std::span<float> values) {
  const int carry = std::countr_one(static_cast<uint64_t>(added_));
  if (carry == 0) {
    device_.copy(values, levels_[0].as<float>().first(values.size()));
  } else {
    for (int l = 0; l + 1 < carry; ++l) device_.add(levels_[l].as<float>().first(values.size()), values);
    device_.add(values, levels_[carry - 1].as<float>().first(values.size()));
    std::swap(levels_[carry - 1], levels_[carry]);
  }
  ++added_;
}

void ShardTree::finish(std::span<float> values, size_t begin, size_t end) {
  for (size_t l = 0; l < levels_.size(); ++l)
    if (added_ >> l & 1)
      device_.add(levels_[l].as<float>().subspan(begin, end - begin), values.subspan(begin, end - begin));
}

}  // namespace lockstep::train
