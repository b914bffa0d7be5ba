#pragma once

#include <functional>
#include <optional>

#include "comm/world.h"
#include "data/loader.h"
#include "train/replica.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;             ///< mean over samples
  int64_t top1 = 0, top5 = 0;  ///< samples right
  int64_t count = 0;           ///< samples seen: every one exactly once, at any world size
};

/// All ranks together; `loader` makes one pass over this rank's share. Sums are exact integers (losses in
/// units of 2^-24), so the result has the same bits however the shards were shared out. Now and then the
/// ranks ask `stop`, where it is given: when it is true on any of them, all leave with nothing.
std::optional<Evaluation> evaluate(Replica& replica, data::Loader& loader, comm::World& world,
                                   const std::function<bool()>& stop = {});

/// The loader of rank `rank`'s share of `set`: shard s of every `ranks` shards.
data::LoaderOptions evaluation_share(int64_t micro_batch, int rank, int ranks, int threads, int prefetch);

}  // namespace lockstep::train
