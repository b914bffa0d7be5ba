// Learning rate by taken step: a pure function, so resuming needs no scheduler state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

/// Section `schedule`.
struct ScheduleOptions {
  std::string name = "cosine";  ///< constant | step | multistep | cosine | polynomial
  std::string unit = "epochs";  ///< epochs | steps: what warmup, step_size and milestones count in
  double warmup = 0;            ///< length of the linear warm-up; 0 is none
  double warmup_start = 0.1;    ///< factor on the learning rate at step 0, rising to 1 at the warm-up's end
  double gamma = 0.1;           ///< step, multistep: factor at each decay
  double step_size = 30;        ///< step: distance between decays
  std::vector<double> milestones;  ///< multistep: where to decay, ascending
  double power = 1;                ///< polynomial: exponent; 1 is linear
  double min_lr = 0;               ///< cosine, polynomial: value at the end; step, multistep: never below
};

/// Throws UserError for an unknown name or unit, values out of range, and milestones missing or not
/// ascending. `total_steps` 0 means that the run has no known length: then cosine and polynomial are refused.
/// A run may end within its warm-up.
void check(const ScheduleOptions& options, double base_lr, int64_t total_steps, int64_t steps_per_epoch);

/// The learning rate of the step taken after `step` others. `options` must pass check().
/// Warm-up of W steps: base_lr * (start + (1 - start) * step / W), as torch's LinearLR. Cosine and polynomial
/// then run over the remaining total_steps - W (SequentialLR with CosineAnnealingLR, PolynomialLR). Step and
/// multistep count from step 0, warm-up included (ChainedScheduler with StepLR, MultiStepLR). Lengths in
/// epochs are rounded to whole steps.
double lr(const ScheduleOptions& options, double base_lr, int64_t step, int64_t total_steps,
          int64_t steps_per_epoch);

}  // namespace lockstep::train
