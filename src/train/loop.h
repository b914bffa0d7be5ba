// The run: steps, evaluations, checkpoints and reports until a limit is reached or a stop is asked for.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "checkpoint/save.h"
#include "comm/world.h"
#include "data/loader.h"
#include "monitor/console.h"
#include "monitor/metrics_log.h"
#include "train/evaluate.h"
#include "train/options.h"
#include "train/replica_team.h"
#include "train/schedule.h"
#include "train/stop_signals.h"

namespace lockstep::train {

/// Where a run stands and what it knows of itself: what a checkpoint stores besides tensors.
struct Position {
  int64_t step = 0;     ///< steps done, taken and skipped
  int64_t skipped = 0;  ///< of these, steps that changed nothing; the schedule stands at the rest
  data::Cursor cursor;  ///< the next global batch
  int64_t samples = 0;  ///< trained on since the run began
  double train_loss =
      std::numeric_limits<double>::quiet_NaN();    ///< of the last log interval; NaN before the first step
  double interval_loss = 0, interval_weight = 0;   ///< sums of the log interval in hand
  std::optional<monitor::EvaluationMetrics> eval;  ///< the last
  double loss_scale = 0;                           ///< fp16: of the next step; 0: none
  int64_t growth_tracker = 0;                      ///< fp16: good steps since the scale changed
  int64_t taken() const { return step - skipped; }
};

/// Into, and out of, the state of a checkpoint.
void save_position(const Position& position, checkpoint::State& state);
Position load_position(const checkpoint::State& state);

/// What the loop works with; everything outlives it. `saver`, `console` and `log` are rank 0's, null
/// elsewhere. The members have no `eval` without evaluation data.
struct LoopParts {
  comm::World& world;
  ReplicaTeam& team;
  checkpoint::Saver* saver;
  monitor::Console* console;
  monitor::MetricsLog* log;
  const StopSignals& signals;
};

struct LoopOptions {
  TrainOptions train;
  double base_lr = 0;
  ScheduleOptions schedule;
  CheckpointOptions checkpoint;
  int64_t check_every = 0;  ///< steps between agreement checks; 0 is off
  int64_t log_every = 50;
  std::string unit = "img";  ///< what a sample is called
  checkpoint::State state;   ///< what every checkpoint of this run says: job, seed, hashes, ...
  int64_t saved_step =
      -1;  ///< of the checkpoint that the run's directory holds already; -1: none. Equal on all ranks
};

struct LoopResult {
  Position position;
  bool stopped = false;    ///< a signal ended it, after a checkpoint: exit 3
  bool evaluated = false;  ///< in this process
  int64_t samples = 0;     ///< trained on in this process
  monitor::PhaseTotals time;
  double step_ms_median = 0, step_ms_p95 = 0;
};

/// Steps to take until the run ends: the first of train.steps and train.epochs; 0 when neither is set.
int64_t total_steps(const TrainOptions& options, int64_t steps_per_epoch);

/// All ranks together. A stop signal ends it at the next step boundary with a checkpoint; an evaluation that
/// was due there is made when the run goes on. Throws AgreedExit when fifty steps in a row were not finite.
LoopResult run_loop(const LoopParts& parts, const LoopOptions& options, Position position);

}  // namespace lockstep::train
