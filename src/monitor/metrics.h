// What training reports at a log interval and at an evaluation: for the console, metrics.jsonl and
// summary.json.
#pragma once

#include <cstdint>
#include <string>

#include "monitor/phase_timer.h"

namespace lockstep::monitor {

/// Means over the steps since the last report, except where it says otherwise.
struct StepMetrics {
  int64_t step = 0;   ///< steps done
  int64_t steps = 0;  ///< steps of the whole run; 0: only time ends it
  double epoch = 0;   ///< epochs done, with fraction
  double loss = 0;
  double lr = 0;             ///< of the last step
  double gradient_norm = 0;  ///< of the last step, before clipping
  double samples_per_second = 0;
  double step_ms = 0;
  PhaseFractions time;
  uint64_t host_bytes = 0;  ///< resident now
  uint64_t device_bytes = 0;
  int64_t skipped_steps = 0;  ///< since the run began
  double loss_scale = 0;      ///< of the next step; 0: none
  double eta_seconds = 0;
};

struct EvaluationMetrics {
  int64_t step = 0;
  double epoch = 0;
  double loss = 0;
  double top1 = 0, top5 = 0;  ///< fractions, 0 to 1
  int64_t count = 0;          ///< samples, each exactly once
  double seconds = 0;
};

}  // namespace lockstep::monitor
