#include "train/evaluate.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::train {

constexpr int64_t kShardsBetweenVotes = 16;

namespace {

struct Sums {
  __int128 loss = 0;
  int64_t bad = 0, top1 = 0, top5 = 0, count = 0;

  void operator+=(const Sums& s) {
    loss += s.loss, bad += s.bad, top1 += s.top1, top5 += s.top5, count += s.count;
  }
  void operator+=(const device::ShardMetrics& m) {
    const bool counts = std::isfinite(m.loss_sum) && std::abs(m.loss_sum) < 0x1p30;
    if (counts) loss += std::llround(static_cast<double>(m.loss_sum) * 0x1p24);
    bad += !counts;
    top1 += static_cast<int64_t>(m.top1);
    top5 += static_cast<int64_t>(m.top5);
    count += static_cast<int64_t>(m.samples);
  }
};

// A few shards of a member's share; false after the last.
bool some_shards(const ReplicaTeam& team, Member& m, Sums& sums) {
  for (int64_t shard = 0; shard < kShardsBetweenVotes; ++shard) {
    team.require_all();
    const nn::Batch* batch = m.eval->next();
    if (!batch) return false;
    if (batch->count == 0) continue;
    device::Program& program = m.replica->program(device::Mode::evaluate, batch->count);
    program.load(*batch);
    program.forward({});
    sums += m.store().metrics(m.store().statistics());
  }
  return true;
}

}  // namespace

std::optional<Evaluation> evaluate(ReplicaTeam& team, comm::World& world, const std::function<bool()>& stop) {
  std::vector<Sums> of_member(team.size());
  std::atomic<bool> more = true;  // the same for all: every device has equally many shards, some empty
  team.run([&](Member& m) { m.eval->seek({}); });
  while (more) {
    if (stop && world.any(stop())) return std::nullopt;
    team.run([&](Member& m) {
      if (!some_shards(team, m, of_member[&m - &team.first()])) more = false;
    });
  }
  Sums mine, all;
  for (const Sums& s : of_member) mine += s;
  for (const Sums& s : world.all_gather_values(mine)) all += s;
  const double loss = static_cast<double>(all.loss) * 0x1p-24 / static_cast<double>(all.count);
  return Evaluation{all.bad ? std::numeric_limits<double>::quiet_NaN() : loss, all.top1, all.top5, all.count};
}

data::LoaderOptions evaluation_share(int64_t micro_batch, int device, int devices, int threads,
                                     int prefetch) {
  return {.micro_batch = micro_batch,
          .shards_per_step = devices,
          .first_shard = device,
          .num_shards = 1,
          .threads = threads,
          .prefetch = prefetch,
          .train = false};
}

}  // namespace lockstep::train
