// One optimizer step: a device's shards forward and backward, their sum over all devices, the update.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "monitor/phase_timer.h"
#include "train/batch_plan.h"
#include "train/optimizer.h"
#include "train/replica.h"
#include "train/shard_tree.h"

namespace lockstep::train {

/// The same on every device.
struct StepOutcome {
  device::ShardMetrics metrics;  ///< of the whole global batch
  double gradient_norm = 0;      ///< global L2 norm of the mean gradient, before clipping
  bool taken = false;  ///< false: gradients were not finite, or no sample weighed anything; nothing changed
  int stop_votes = 0;  ///< devices that asked to stop at this boundary
};

class Step {
 public:
  /// All arguments outlive the step. `seed` keys dropout.
  Step(Replica& replica, comm::Collective& collective, Optimizer& optimizer, const BatchPlan& plan,
       uint64_t seed, double clip_norm, double bucket_mib);

  /// `next` gives this device's shards of one global batch in order (empty ones too). Gradients are of the
  /// sum of losses over the nominal global batch, then scaled to the mean over the samples that were there.
  /// Only the last shard's backward communicates, bucket by bucket as ranges become final.
  StepOutcome run(const std::function<const nn::Batch&()>& next, int64_t step, int64_t taken, double lr,
                  bool vote_to_stop, monitor::PhaseTimer& timer);

  /// The first parameter, in backward's order, whose reduced gradient is not finite; "" when all are.
  std::string first_non_finite() const;

  size_t bytes() const;  ///< of partial sums

 private:
  void run_shard(const nn::Batch& batch, int64_t step, bool last, monitor::PhaseTimer& timer);
  void submit_ready(int64_t ready_end);

  Replica& replica_;
  comm::Collective& collective_;
  Optimizer& optimizer_;
  const BatchPlan plan_;
  const uint64_t seed_;
  const double clip_norm_;
  ShardTree gradient_tree_, statistics_tree_;
  std::vector<int64_t> bucket_ends_;
  size_t next_bucket_ = 0;
  std::vector<comm::Handle> handles_;
  std::vector<float> reduced_;  ///< statistics, then the votes
};

}  // namespace lockstep::train
