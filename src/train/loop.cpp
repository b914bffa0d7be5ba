#include "train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "monitor/host_memory.h"
#include "train/agreement.h"
#include "train/model_state.h"

namespace lockstep::train {

namespace {

constexpr int kSkipLimit = 50;

class Loop {
 public:
  Loop(const LoopParts& parts, const LoopOptions& options, Position position)
      : p_(parts),
        o_(options),
        at_(position),
        first_(parts.team.first()),
        timer_(first_.timer),
        steps_per_epoch_(first_.train->order().batches_per_epoch()),
        total_steps_(total_steps(options.train, steps_per_epoch_)),
        last_saved_(options.saved_step),
        began_(monitor::steady_seconds()) {}

  LoopResult run() {
    p_.team.run([&](Member& m) {
      m.train->seek(at_.cursor);
      if (GradScaler* scaler = m.step->scaler(); scaler && at_.loss_scale > 0)
        scaler->restore(static_cast<float>(at_.loss_scale), at_.growth_tracker);
    });
    vote_to_stop();
    if (!stop_ && at_.step > 0) evaluate_if_due();  // the run before was stopped just here
    while (!stop_ && !stop_voted_ && !finished()) {
      one_step();
      if (stop_voted_) vote_to_stop();
    }
    report_interval(true);
    if (!stop_) evaluate_if_new();
    save_if_new();
    wait_for_write();
    tell_failures();
    LoopResult result;
    result.position = at_;
    result.stopped = stop_;
    result.evaluated = evaluated_;
    result.samples = samples_;
    result.time = timer_.totals();
    result.step_ms_median = timer_.step_ms(0.5);
    result.step_ms_p95 = timer_.step_ms(0.95);
    return result;
  }

 private:
  bool finished() const {
    const TrainOptions& t = o_.train;
    return (t.steps > 0 && at_.taken() >= t.steps) ||
           (t.epochs > 0 && at_.cursor.epoch >= static_cast<uint64_t>(t.epochs));
  }

  void vote_to_stop() { stop_ = stop_ || p_.world.any(p_.signals.requested()); }

  bool out_of_time() const {
    return o_.train.minutes > 0 && monitor::steady_seconds() - began_ >= o_.train.minutes * 60;
  }

  void one_step() {
    timer_.begin_step();
    lr_ = lr(o_.schedule, o_.base_lr, at_.taken(), total_steps_, steps_per_epoch_);
    p_.team.run(step_);
    timer_.end_step();
    const StepOutcome& outcome = outcome_;

    stop_voted_ = outcome.stop_votes > 0;
    ++at_.step;
    at_.cursor = first_.train->order().next(at_.cursor);
    gradient_norm_ = outcome.gradient_norm;
    if (const GradScaler* scaler = first_.step->scaler()) {
      at_.loss_scale = scaler->scale();
      at_.growth_tracker = scaler->growth_tracker();
    }
    if (outcome.taken) {
      at_.interval_loss += outcome.metrics.loss_sum;
      at_.interval_weight += outcome.metrics.weight_sum;
    }
    interval_samples_ += static_cast<int64_t>(outcome.metrics.samples);
    samples_ += static_cast<int64_t>(outcome.metrics.samples);
    at_.samples += static_cast<int64_t>(outcome.metrics.samples);
    outcome.taken ? void(skips_in_a_row_ = 0) : skipped(outcome);

    if (at_.step % o_.log_every == 0) report_interval(false);
    if (!stop_voted_ && !finished()) {
      evaluate_if_due();
      if (!stop_ && o_.check_every > 0 && at_.step % o_.check_every == 0)
        check_agreement(p_.team, p_.world, at_.step);
      if (!stop_ && o_.checkpoint.every > 0 && at_.step % o_.checkpoint.every == 0) save_if_new();
    }
    tell_failures();
  }

  // One replica's part of a step.
  void step(Member& m) {
    const bool first = &m == &first_;
    auto next = [this, &m]() -> const nn::Batch& {
      p_.team.require_all();
      return *m.train->next();
    };
    if (!first) m.timer.begin_step();
    const bool vote = first && (p_.signals.requested() || out_of_time());
    const StepOutcome outcome = m.step->run(next, at_.step, at_.taken(), lr_, vote, m.timer);
    if (!first) return m.timer.end_step();
    outcome_ = outcome;
  }

  void skipped(const StepOutcome& outcome) {
    ++at_.skipped;
    const std::string parameter = p_.world.broadcast(first_.step->first_non_finite());
    const std::string why = outcome.metrics.weight_sum > 0
                                ? fmt::format("the gradient of '{}' is not finite", parameter)
                                : std::string("no sample of its batch weighs anything");
    const GradScaler* scaler = first_.step->scaler();
    const bool exhausted = scaler && scaler->exhausted();
    if (++skips_in_a_row_ >= kSkipLimit || exhausted) {
      report_interval(true);
      save_if_new();
      wait_for_write();
      const UserError error(
          exhausted
              ? fmt::format("training diverged: step '{}' overflows even at a loss scale of '1'", at_.step)
              : fmt::format("training diverged: steps '{}' to '{}' were all skipped",
                            at_.step - kSkipLimit + 1, at_.step),
          fmt::format("at the last of them {}; its loss was '{}'", why,
                      outcome.metrics.loss_sum / outcome.metrics.weight_sum),
          fmt::format("lower optim.lr (now '{}'), lengthen schedule.warmup, or set optim.clip_norm{}",
                      o_.base_lr, scaler ? "; amp.mode bf16 has the range of fp32" : ""));
      p_.world.all_agree_ok(&error);
    }
    if (p_.console && skips_in_a_row_ <= 3)
      p_.console->print(monitor::warning(
          fmt::format("step {} was skipped: {}{}", at_.step, why,
                      scaler ? fmt::format("; the loss scale is now {:g}", scaler->scale()) : ""),
          p_.console->color()));
  }

  double epochs_done() const {
    return static_cast<double>(at_.cursor.epoch) +
           static_cast<double>(at_.cursor.batch) /
               static_cast<double>(std::max<int64_t>(1, steps_per_epoch_));
  }

  // Steps, taken and skipped, at which the run ends; 0 when only time ends it.
  int64_t last_step() const {
    const int64_t by_steps = o_.train.steps > 0 ? o_.train.steps + at_.skipped : 0;
    const int64_t by_epochs = o_.train.epochs * steps_per_epoch_;
    return by_steps > 0 && by_epochs > 0 ? std::min(by_steps, by_epochs) : std::max(by_steps, by_epochs);
  }

  double eta(double seconds_a_step) const {
    double left = last_step() > 0 ? seconds_a_step * static_cast<double>(last_step() - at_.step)
                                  : std::numeric_limits<double>::infinity();
    if (o_.train.minutes > 0)
      left = std::min(left, o_.train.minutes * 60 - (monitor::steady_seconds() - began_));
    return std::max(0.0, left);
  }

  // The sums of an interval that a run ends in go into its checkpoint: going on, it reports what a run that
  // was never stopped would.
  void report_interval(bool last) {
    const monitor::PhaseTotals interval = timer_.take_interval();
    if (interval.steps == 0) return;
    const double loss = at_.interval_weight > 0 ? at_.interval_loss / at_.interval_weight
                                                : std::numeric_limits<double>::quiet_NaN();
    if (at_.interval_weight > 0) at_.train_loss = loss;
    const double seconds = interval.total_seconds(), a_step = seconds / static_cast<double>(interval.steps);
    monitor::StepMetrics m;
    m.step = at_.step;
    m.steps = last_step();
    m.epoch = epochs_done();
    m.loss = loss;
    m.lr = lr_;
    m.gradient_norm = gradient_norm_;
    m.samples_per_second = static_cast<double>(interval_samples_) / seconds;
    m.step_ms = a_step * 1e3;
    m.time = interval.fractions();
    m.host_bytes = monitor::host_bytes();
    m.device_bytes = m.host_bytes;
    m.skipped_steps = at_.skipped;
    m.loss_scale = at_.loss_scale;
    m.eta_seconds = last ? 0 : eta(a_step);
    if (p_.console) p_.console->print(monitor::step_line(m, o_.unit, p_.console->color()));
    if (p_.log && !stop_) p_.log->write(m);
    interval_samples_ = 0;
    if (!last) at_.interval_loss = at_.interval_weight = 0;
  }

  void evaluate_if_due() {
    const bool epoch_end = at_.cursor.batch == 0;
    const bool by_epoch = epoch_end && o_.train.eval_every > 0 && at_.cursor.epoch % o_.train.eval_every == 0;
    const bool by_step = o_.train.eval_every_steps > 0 && at_.step % o_.train.eval_every_steps == 0;
    if ((by_epoch || by_step) && evaluate_if_new()) save_if_new();
  }

  /// Whether it is the best so far by checkpoint.best.
  bool evaluate_if_new() {
    if (!first_.eval || (at_.eval && at_.eval->step == at_.step)) return false;
    const double begin = monitor::steady_seconds();
    if (o_.train.ema_decay > 0) exchange_averages();
    const std::optional<Evaluation> evaluation =
        evaluate(p_.team, p_.world, [this] { return p_.signals.requested(); });
    if (o_.train.ema_decay > 0) exchange_averages();
    if (!evaluation) {  // it is made when the run goes on
      stop_ = true;
      return false;
    }
    const Evaluation& e = *evaluation;
    monitor::EvaluationMetrics m;
    m.step = at_.step;
    m.epoch = epochs_done();
    m.loss = e.loss;
    m.top1 = static_cast<double>(e.top1) / static_cast<double>(e.count);
    m.top5 = static_cast<double>(e.top5) / static_cast<double>(e.count);
    m.count = e.count;
    m.seconds = monitor::steady_seconds() - begin;
    at_.eval = m;
    evaluated_ = true;
    if (last_saved_ == at_.step) last_saved_ = -1;  // it was saved without this evaluation
    if (p_.console) p_.console->print(monitor::evaluation_line(m, p_.console->color()));
    if (p_.log) p_.log->write(m);
    return is_best();
  }

  // Better than every checkpoint that the run's directory holds: one that could not be written is no rival.
  bool is_best() {
    if (o_.checkpoint.best == "none") return false;
    wait_for_write();
    bool better = false;
    if (p_.saver) {
      const checkpoint::Metric mine = metric();
      const std::optional<checkpoint::Metric> best = p_.saver->best();
      better = !std::isnan(mine.value) &&
               (!best || (mine.higher_is_better ? mine.value > best->value : mine.value < best->value));
    }
    return p_.world.any(better);
  }

  checkpoint::Metric metric() const {
    const std::string& name = o_.checkpoint.best;
    return {name,
            name == "loss"   ? at_.eval->loss
            : name == "top5" ? at_.eval->top5
                             : at_.eval->top1,
            name != "loss"};
  }

  // Evaluation sees the averaged weights where there are any.
  void exchange_averages() {
    p_.team.run([](Member& m) {
      if (m.optimizer) {
        std::ranges::swap_ranges(m.optimizer->average(), m.store().values());
        m.store().refresh_copies();
      }
      m.step->share_parameters();
    });
  }

  void save_if_new() {
    if (last_saved_ == at_.step) return;
    last_saved_ = at_.step;
    wait_for_write();
    if (!p_.saver) return;
    checkpoint::Snapshot snapshot = p_.saver->take_storage();
    save_tensors(first_.store(), *first_.optimizer, at_.taken(), snapshot);
    snapshot.state = o_.state;
    save_position(at_, snapshot.state);
    if (at_.eval && at_.eval->step == at_.step && o_.checkpoint.best != "none")
      snapshot.state.metric = metric();
    p_.saver->save(std::move(snapshot));
  }

  // A slow disk may take longer than the ranks' patience with each other: all wait together, and stay in
  // touch.
  void wait_for_write() {
    const double begin = monitor::steady_seconds();
    double told = begin;
    p_.world.until_all([&] {
      const double now = monitor::steady_seconds();
      if (p_.console && now - told >= 10) {
        told = now;
        p_.console->print(fmt::format("waiting for a checkpoint to be written: {:.0f} s", now - begin));
      }
      return !p_.saver || !p_.saver->busy();
    });
  }

  void tell_failures() {
    if (!p_.console) return;
    if (p_.saver)
      if (auto failure = p_.saver->take_failure())
        p_.console->print(monitor::warning(failure->what(), p_.console->color()));
    if (p_.log)
      if (auto failure = p_.log->take_failure())
        p_.console->print(monitor::warning(*failure, p_.console->color()));
  }

  const LoopParts& p_;
  const LoopOptions& o_;
  Position at_;
  Member& first_;
  monitor::PhaseTimer& timer_;
  const std::function<void(Member&)> step_ = [this](Member& m) { step(m); };
  StepOutcome outcome_;
  const int64_t steps_per_epoch_, total_steps_;
  int64_t last_saved_;
  const double began_;
  double lr_ = 0, gradient_norm_ = 0;
  int64_t interval_samples_ = 0, samples_ = 0;
  int skips_in_a_row_ = 0;
  bool stop_voted_ = false, stop_ = false, evaluated_ = false;
};

}  // namespace

void save_position(const Position& p, checkpoint::State& s) {
  s.step = p.step;
  s.skipped_steps = p.skipped;
  s.epoch = static_cast<int64_t>(p.cursor.epoch);
  s.batch = p.cursor.batch;
  if (p.loss_scale > 0) {
    s.values["scaler.scale"] = p.loss_scale;
    s.values["scaler.growth_tracker"] = static_cast<double>(p.growth_tracker);
  }
  s.values["samples"] = static_cast<double>(p.samples);
  s.values["train_loss"] = p.train_loss;
  s.values["interval_loss"] = p.interval_loss;
  s.values["interval_weight"] = p.interval_weight;
  if (p.eval) {
    s.values["eval.step"] = static_cast<double>(p.eval->step);
    s.values["eval.epoch"] = p.eval->epoch;
    s.values["eval.loss"] = p.eval->loss;
    s.values["eval.top1"] = p.eval->top1;
    s.values["eval.top5"] = p.eval->top5;
    s.values["eval.count"] = static_cast<double>(p.eval->count);
  }
}

Position load_position(const checkpoint::State& s) {
  Position p;
  p.step = s.step;
  p.skipped = s.skipped_steps;
  p.cursor = {static_cast<uint64_t>(s.epoch), s.batch};
  const auto value = [&](const char* name, double missing = 0) {
    const auto found = s.values.find(name);
    return found == s.values.end() ? missing : found->second;
  };
  p.samples = static_cast<int64_t>(value("samples"));
  p.loss_scale = value("scaler.scale");
  p.growth_tracker = static_cast<int64_t>(value("scaler.growth_tracker"));
  p.train_loss = value("train_loss", p.train_loss);
  p.interval_loss = value("interval_loss");
  p.interval_weight = value("interval_weight");
  if (s.values.contains("eval.step"))
    p.eval = {.step = static_cast<int64_t>(value("eval.step")),
              .epoch = value("eval.epoch"),
              .loss = value("eval.loss"),
              .top1 = value("eval.top1"),
              .top5 = value("eval.top5"),
              .count = static_cast<int64_t>(value("eval.count"))};
  return p;
}

int64_t total_steps(const TrainOptions& options, int64_t steps_per_epoch) {
  const int64_t by_epochs = options.epochs * steps_per_epoch;
  if (options.steps > 0 && by_epochs > 0) return std::min(options.steps, by_epochs);
  return std::max(options.steps, by_epochs);
}

LoopResult run_loop(const LoopParts& parts, const LoopOptions& options, Position position) {
  return Loop(parts, options, position).run();
}

}  // namespace lockstep::train
