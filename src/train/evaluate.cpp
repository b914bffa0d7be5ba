#include "train/evaluate.h"

#include <cmath>
#include <limits>

namespace lockstep::train {

constexpr int64_t kShardsBetweenVotes = 16;

std::optional<Evaluation> evaluate(Replica& replica, data::Loader& loader, comm::World& world,
                                   const std::function<bool()>& stop) {
  struct Sums {
    __int128 loss = 0;
    int64_t bad = 0, top1 = 0, top5 = 0, count = 0;
  } sums;
  loader.seek({});
  // Every rank has equally many shards, some of them empty.
  for (int64_t shard = 0; const nn::Batch* batch = loader.next(); ++shard) {
    if (stop && shard % kShardsBetweenVotes == 0 && world.any(stop())) return std::nullopt;
    if (batch->count == 0) continue;
    device::Program& program = replica.program(device::Mode::evaluate, batch->count);
    program.load(*batch);
    program.forward({});
    const device::ShardMetrics m = replica.store().metrics(replica.store().statistics());
    const bool counts = std::isfinite(m.loss_sum) && std::abs(m.loss_sum) < 0x1p30;
    if (counts) sums.loss += std::llround(static_cast<double>(m.loss_sum) * 0x1p24);
    sums.bad += !counts;
    sums.top1 += static_cast<int64_t>(m.top1);
    sums.top5 += static_cast<int64_t>(m.top5);
    sums.count += static_cast<int64_t>(m.samples);
  }
  Sums all;
  for (const Sums& s : world.all_gather_values(sums)) {
    all.loss += s.loss, all.bad += s.bad, all.top1 += s.top1, all.top5 += s.top5, all.count += s.count;
  }
  const double loss = static_cast<double>(all.loss) * 0x1p-24 / static_cast<double>(all.count);
  return Evaluation{all.bad ? std::numeric_limits<double>::quiet_NaN() : loss, all.top1, all.top5, all.count};
}

data::LoaderOptions evaluation_share(int64_t micro_batch, int rank, int ranks, int threads, int prefetch) {
  return {.micro_batch = micro_batch,
          .shards_per_step = ranks,
          .first_shard = rank,
          .num_shards = 1,
          .threads = threads,
          .prefetch = prefetch,
          .train = false};
}

}  // namespace lockstep::train
