#include <fmt/format.h>

#include <bit>

#include "comm/collective.h"
#include "comm/mpi_exact.h"
#include "comm/mpi_fast.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "comm/worker.h"
#include "comm/world.h"
#include "core/error.h"

namespace lockstep::comm {

namespace {

void require_power_of_two(unsigned devices) {
  if (std::has_single_bit(devices)) return;
  const unsigned below = std::bit_floor(devices);
  throw UserError(
      fmt::format("exact reduction is impossible on '{}' devices", devices),
      "its sum is one binary tree over devices, whole only for a power of two: 1, 2, 4, 8, 16, ...",
      fmt::format("use '{}' or '{}' devices, or --reduction fast", below, 2 * below));
}

// On one rank too, where nothing would be rounded: a job that runs alone must run on many.
void refuse_compression(Dtype compress) {
  if (compress == Dtype::f32) return;
  throw UserError(fmt::format("exact reduction is impossible with gradients compressed to '{}'",
                              compress == Dtype::f16 ? "fp16" : "bf16"),
                  "each rank rounds what it sends, so the bits would depend on how devices are laid out",
                  "use --reduction fast, or --parallel.compress off");
}

std::unique_ptr<Algorithm> between_ranks(World& world, const CollectiveOptions& options) {
  if (world.size() == 1) return nullptr;
  if (options.reduction == Reduction::exact) return std::make_unique<MpiExact>(world, options);
  return std::make_unique<MpiFast>(world, options);
}

}  // namespace

std::vector<std::unique_ptr<Collective>> make_collectives(World& world, int replicas,
                                                          const CollectiveOptions& options) {
  const int devices = world.size() * replicas;
  if (options.reduction == Reduction::exact) {
    require_power_of_two(static_cast<unsigned>(devices));
    refuse_compression(options.compress);
  }
  std::vector<std::unique_ptr<Collective>> collectives;
  std::unique_ptr<Algorithm> ranks = between_ranks(world, options);
  if (devices == 1) {
    collectives.push_back(std::make_unique<Self>());
  } else if (replicas == 1) {
    collectives.push_back(std::make_unique<Worker>(std::move(ranks), world.rank(), devices));
  } else {
    const auto group = std::make_shared<ReplicaGroup>(world, replicas, std::move(ranks));
    for (int r = 0; r < replicas; ++r)
      collectives.push_back(
          std::make_unique<Worker>(std::make_unique<ReplicaAlgorithm>(group, r, options.timeout),
                                   world.rank() * replicas + r, devices));
  }
  return collectives;
}

std::unique_ptr<Collective> make_collective(World& world, const CollectiveOptions& options) {
  return std::move(make_collectives(world, 1, options).front());
}

}  // namespace lockstep::comm
