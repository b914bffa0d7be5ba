// One optimizer step: a device's shards forward and backward, their sum over all devices, the update.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "monitor/phase_timer.h"
#include "train/batch_plan.h"
#include "train/grad_scaler.h"
#include "train/optimizer.h"
#include "train/replica.h"
#include "train/shard_tree.h"

namespace lockstep::train {

/// The same on every device.
struct StepOutcome {
  device::ShardMetrics metrics;  ///< of the whole global batch
  double gradient_norm = 0;      ///< global L2 norm of the mean gradient, before clipping
  bool taken = false;  ///< false: gradients were not finite, or no sample weighed anything; nothing changed
  bool found_inf = false;  ///< gradients were not finite
  int stop_votes = 0;      ///< devices that asked to stop at this boundary
};

struct StepOptions {
  BatchPlan plan;
  uint64_t seed = 1;                        ///< keys dropout
  double clip_norm = 0;                     ///< largest global L2 norm of the gradient; 0 is off
  double bucket_mib = 8;                    ///< gradient bytes reduced in one operation, in MiB
  std::optional<GradScalerOptions> scaler;  ///< fp16: scale the loss
  Dtype wire = Dtype::f32;                  ///< what gradients cross between ranks in
  bool sync_batch_norm = false;             ///< the model has statistics that span the devices
  bool root = false;  ///< device 0 alone has an optimizer: it updates, and sends the parameters to all
};

class Step {
 public:
  /// Replica, collective and optimizer outlive the step. `optimizer` is null on a device without one.
  Step(Replica& replica, comm::Collective& collective, Optimizer* optimizer, const StepOptions& options);

  /// `next` gives this device's shards of one global batch in order (empty ones too). Gradients are of the
  /// sum of losses over the nominal global batch, then scaled to the mean over the samples that were there.
  /// Only the last shard's backward communicates, bucket by bucket as ranges become final.
  StepOutcome run(const std::function<const nn::Batch&()>& next, int64_t step, int64_t taken, double lr,
                  bool vote_to_stop, monitor::PhaseTimer& timer);

  /// Null without options.scaler. Equal on all devices.
  GradScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

  /// With options.root: device 0's parameters to all, for all devices together. Else nothing: they are equal.
  void share_parameters();

  /// The first parameter, in backward's order, whose reduced gradient is not finite; "" when all are. On a
  /// device that holds the reduced gradients.
  std::string first_non_finite() const;

  size_t bytes() const { return gradient_tree_.bytes(); }  ///< of partial sums

 private:
  // Sums for synchronised batch norm; the pass waits for it.
  class Sum final : public device::SumOverDevices {
   public:
    explicit Sum(comm::Collective& collective) : collective_(collective) {}
    void sum(std::span<double> values) override;
    /// What the time of the pass counts as.
    void within(monitor::PhaseTimer& timer, monitor::Phase pass) { timer_ = &timer, pass_ = pass; }

   private:
    comm::Collective& collective_;
    monitor::PhaseTimer* timer_ = nullptr;
    monitor::Phase pass_ = monitor::Phase::forward;
  };
  void run_shard(const nn::Batch& batch, int64_t step, bool last, monitor::PhaseTimer& timer);
  void submit_ready(int64_t ready_end);
  void update(double lr, int64_t taken, StepOutcome& outcome);
  std::span<float> bucket(std::span<float> flat, size_t i) const;

  Replica& replica_;
  comm::Collective& collective_;
  Optimizer* const optimizer_;
  const StepOptions o_;
  Sum sum_;
  ShardTree gradient_tree_, statistics_tree_;
  std::vector<int64_t> bucket_ends_;
  size_t next_bucket_ = 0;
  std::vector<comm::Handle> handles_;
  std::vector<float> reduced_;      ///< statistics, then the votes
  std::array<float, 3> verdict_{};  ///< of device 0, with root: step taken, gradients not finite, their norm
  std::optional<GradScaler> scaler_;
};

}  // namespace lockstep::train
