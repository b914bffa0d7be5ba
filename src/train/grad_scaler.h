// Loss scaling for fp16, whose smallest gradients would be flushed to zero (Micikevicius et al., "Mixed
// precision training", 2018): the loss is multiplied by a scale, the gradients are divided by it.
#pragma once

#include <cstdint>

namespace lockstep::train {

/// torch.amp.GradScaler's options, with its defaults.
struct GradScalerOptions {
  double init_scale = 65536;       ///< first loss scale; at least 1
  double growth_factor = 2;        ///< of the scale after growth_interval good steps in a row; above 1
  double backoff_factor = 0.5;     ///< of the scale after a step with a non-finite gradient; below 1
  int64_t growth_interval = 2000;  ///< good steps in a row before the scale grows
};

/// The dynamic loss scale, as torch.amp.GradScaler updates it (at::_amp_update_scale_): factors are applied
/// in double and rounded to fp32, both kinds of change start the count of good steps anew, and a growth past
/// fp32 is not taken. Two differences: the scale stays at 1 or above, where PyTorch has no floor and goes on
/// to 0; and a count restored above a growth_interval that is now shorter grows at the next good step, where
/// PyTorch, which compares for equality, would wait for an overflow.
///
/// A value: every device keeps its own, and equal votes keep them equal.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options)
      : options_(options), scale_(static_cast<float>(options.init_scale)) {}

  /// What the loss is multiplied by.
  float scale() const { return scale_; }
  /// Good steps since the last change of the scale.
  int64_t growth_tracker() const { return growth_tracker_; }

  /// After each step. `found_inf`: any gradient on any device was not finite, so no device took the step.
  void update(bool found_inf);
  /// The state of a checkpoint; it goes on as if it had never stopped.
  void restore(float scale, int64_t growth_tracker);

  /// The last step overflowed although the scale was at its floor of 1 already: scaling cannot help, the
  /// gradients themselves are not finite.
  bool exhausted() const { return exhausted_; }

 private:
  GradScalerOptions options_;
  float scale_;
  int64_t growth_tracker_ = 0;
  bool exhausted_ = false;
};

}  // namespace lockstep::train
