#pragma once

#include <functional>
#include <optional>

#include "comm/world.h"
#include "data/loader.h"
#include "train/replica_team.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;             ///< mean over samples
  int64_t top1 = 0, top5 = 0;  ///< samples right
  int64_t count = 0;           ///< samples seen: every one exactly once, at any world size
};

/// All ranks together; each member's `eval` loader makes one pass over its share. Sums are exact integers
/// (losses in units of 2^-24), so the result has the same bits however the shards were shared out. Now and
/// then the ranks ask `stop`, where it is given: when it is true on any of them, all leave with nothing.
std::optional<Evaluation> evaluate(ReplicaTeam& team, comm::World& world,
                                   const std::function<bool()>& stop = {});

/// The loader of a device's share of a set: one shard of every `devices`.
data::LoaderOptions evaluation_share(int64_t micro_batch, int device, int devices, int threads, int prefetch);

}  // namespace lockstep::train
