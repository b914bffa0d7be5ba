#include "train/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep::train {

namespace {

uint64_t hash_of(std::span<const float> values) { return xxh3(std::as_bytes(values)); }

// Of every device, in order.
std::vector<uint64_t> gather(ReplicaTeam& team, comm::World& world,
                             const std::function<uint64_t(device::Store&)>& hash) {
  std::vector<uint64_t> mine(team.size()), all;
  team.run([&](Member& m) { mine[&m - &team.first()] = hash(m.store()); });
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(uint64_t));
  for (const std::string& of_rank : world.all_gather(bytes, "agreement check")) {
    const auto* values = reinterpret_cast<const uint64_t*>(of_rank.data());
    all.insert(all.end(), values, values + of_rank.size() / sizeof(uint64_t));
  }
  return all;
}

// Devices whose hash is not the commonest (the first device's when tied).
std::vector<int> odd_ones(const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, int> count;
  for (uint64_t h : hashes) ++count[h];
  uint64_t usual = hashes.front();
  for (const auto& [hash, n] : count)
    if (n > count[usual]) usual = hash;
  std::vector<int> odd;
  for (size_t d = 0; d < hashes.size(); ++d)
    if (hashes[d] != usual) odd.push_back(static_cast<int>(d));
  return odd;
}

[[noreturn]] void refuse(const comm::World& world, int replicas, const std::vector<int>& odd,
                         const std::string& tensor, int64_t step) {
  std::vector<std::string> names;
  for (int d : odd)
    names.push_back(replicas == 1
                        ? world.name_of(d)
                        : fmt::format("replica '{}' of {}", d % replicas, world.name_of(d / replicas)));
  throw ClusterError(
      fmt::format("devices no longer hold the same parameters after step '{}'", step),
      fmt::format("'{}' has other bits on {} than on the rest", tensor, fmt::join(names, ", ")),
      "go on from a checkpoint before that step without that device: its memory or processor may be at "
      "fault");
}

}  // namespace

void check_agreement(ReplicaTeam& team, comm::World& world, int64_t step) {
  const int replicas = team.size();
  if (world.size() * replicas == 1) return;
  const auto agree = [&](const std::string& tensor, const std::function<uint64_t(device::Store&)>& hash) {
    const std::vector<int> odd = odd_ones(gather(team, world, hash));
    if (!odd.empty() && !tensor.empty()) refuse(world, replicas, odd, tensor, step);
    return odd.empty();
  };
  // All at once; one by one only to say which.
  const bool all = agree("", [](device::Store& s) {
    return hash_of(s.values()) ^ (hash_of(s.buffer_values()) * 0x9e3779b97f4a7c15u);
  });
  if (all) return;
  device::Store& mine = team.first().store();
  for (size_t i = 0; i < mine.parameters().size(); ++i)
    agree(mine.parameters()[i].name, [i](device::Store& s) {
      const device::Range r = s.parameters()[i].range;
      return hash_of(s.values().subspan(r.begin, r.size()));
    });
  for (size_t i = 0; i < mine.buffers().size(); ++i)
    agree(mine.buffers()[i].name, [i](device::Store& s) {
      const device::Range r = s.buffers()[i].range;
      return hash_of(s.buffer_values().subspan(r.begin, r.size()));
    });
}

}  // namespace lockstep::train
