#include "train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "monitor/host_memory.h"
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
        steps_per_epoch_(parts.train.order().batches_per_epoch()),
        total_steps_(total_steps(options.train, steps_per_epoch_)),
        last_saved_(options.saved_step),
        began_(monitor::steady_seconds()) {}

  LoopResult run() {
    p_.train.seek(at_.cursor);
    bool stop = false;
    while (!finished()) {
      one_step();
      if (stop_voted_) {
        stop = p_.world.any(p_.signals.requested());
        break;
      }
    }
    report_interval(true);
    const bool done = !stop;
    if (done) evaluate_if_new();
    save_if_new();
    finish_saving();
    LoopResult result;
    result.position = at_;
    result.stopped = stop;
    result.train_loss = last_loss_;
    result.eval = last_eval_;
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

  bool out_of_time() const {
    return o_.train.minutes > 0 && monitor::steady_seconds() - began_ >= o_.train.minutes * 60;
  }

  void one_step() {
    timer_.begin_step();
    lr_ = lr(o_.schedule, o_.base_lr, at_.taken(), total_steps_, steps_per_epoch_);
    auto next = [this]() -> const nn::Batch& { return *p_.train.next(); };
    const StepOutcome outcome =
        p_.step.run(next, at_.step, at_.taken(), lr_, p_.signals.requested() || out_of_time(), timer_);
    timer_.end_step();

    stop_voted_ = outcome.stop_votes > 0;
    ++at_.step;
    at_.cursor = p_.train.order().next(at_.cursor);
    gradient_norm_ = outcome.gradient_norm;
    loss_sum_ += outcome.metrics.loss_sum;
    weight_sum_ += outcome.metrics.weight_sum;
    interval_samples_ += static_cast<int64_t>(outcome.metrics.samples);
    samples_ += static_cast<int64_t>(outcome.metrics.samples);
    at_.samples += static_cast<int64_t>(outcome.metrics.samples);
    outcome.taken ? void(skips_in_a_row_ = 0) : skipped(outcome);

    if (at_.step % o_.log_every == 0) report_interval(false);
    const bool epoch_end = at_.cursor.batch == 0;
    const bool by_epoch = epoch_end && o_.train.eval_every > 0 && at_.cursor.epoch % o_.train.eval_every == 0;
    const bool by_step = o_.train.eval_every_steps > 0 && at_.step % o_.train.eval_every_steps == 0;
    if ((by_epoch || by_step) && !finished()) evaluate_if_new();
    if (o_.checkpoint.every > 0 && at_.step % o_.checkpoint.every == 0 && !finished()) save_if_new();
    tell_failures();
  }

  void skipped(const StepOutcome& outcome) {
    ++at_.skipped;
    const std::string parameter = p_.step.first_non_finite();
    const std::string why = outcome.metrics.weight_sum > 0
                                ? fmt::format("the gradient of '{}' is not finite", parameter)
                                : std::string("no sample of its batch weighs anything");
    if (++skips_in_a_row_ >= kSkipLimit) {
      const UserError error(
          fmt::format("training diverged: steps '{}' to '{}' were all skipped", at_.step - kSkipLimit, at_.step - 1),
          fmt::format("at the last of them {}; its loss was '{}'", why,
                      outcome.metrics.loss_sum / outcome.metrics.weight_sum),
          fmt::format("lower optim.lr (now '{}'), lengthen schedule.warmup, or set optim.clip_norm", o_.base_lr));
      p_.world.all_agree_ok(&error);
    }
    if (p_.console && skips_in_a_row_ <= 3)
      p_.console->print(monitor::warning(fmt::format("step {} was skipped: {}", at_.step - 1, why), p_.console->color()));
  }

  double epochs_done() const {
    return static_cast<double>(at_.cursor.epoch) +
           static_cast<double>(at_.cursor.batch) / static_cast<double>(std::max<int64_t>(1, steps_per_epoch_));
  }

  double eta(double seconds_a_step) const {
    double left = total_steps_ > 0 ? seconds_a_step * static_cast<double>(total_steps_ - at_.taken())
                                   : std::numeric_limits<double>::infinity();
    if (o_.train.minutes > 0) left = std::min(left, o_.train.minutes * 60 - (monitor::steady_seconds() - began_));
    return std::isfinite(left) ? std::max(0.0, left) : 0;
  }

  void report_interval(bool last) {
    const monitor::PhaseTotals interval = timer_.take_interval();
    if (interval.steps == 0) return;
    last_loss_ = loss_sum_ / weight_sum_;
    const double seconds = interval.total_seconds(), a_step = seconds / static_cast<double>(interval.steps);
    monitor::StepMetrics m;
    m.step = at_.step;
    m.steps = total_steps_ + at_.skipped;
    m.epoch = epochs_done();
    m.loss = last_loss_;
    m.lr = lr_;
    m.gradient_norm = gradient_norm_;
    m.samples_per_second = static_cast<double>(interval_samples_) / seconds;
    m.step_ms = a_step * 1e3;
    m.time = interval.fractions();
    m.host_bytes = monitor::host_bytes();
    m.device_bytes = m.host_bytes;
    m.skipped_steps = at_.skipped;
    m.eta_seconds = last ? 0 : eta(a_step);
    if (p_.console) p_.console->print(monitor::step_line(m, o_.unit, p_.console->color()));
    if (p_.log) p_.log->write(m);
    loss_sum_ = weight_sum_ = 0;
    interval_samples_ = 0;
  }

  void evaluate_if_new() {
    if (!p_.eval || (last_eval_ && last_eval_->step == at_.step)) return;
    const double begin = monitor::steady_seconds();
    device::Store& store = p_.replica.store();
    const std::span<float> average = p_.optimizer.average();
    if (!average.empty()) exchange(average, store);
    const Evaluation e = evaluate(p_.replica, *p_.eval, p_.world);
    if (!average.empty()) exchange(average, store);
    monitor::EvaluationMetrics m;
    m.step = at_.step;
    m.epoch = epochs_done();
    m.loss = e.loss;
    m.top1 = static_cast<double>(e.top1) / static_cast<double>(e.count);
    m.top5 = static_cast<double>(e.top5) / static_cast<double>(e.count);
    m.count = e.count;
    m.seconds = monitor::steady_seconds() - begin;
    last_eval_ = m;
    if (p_.console) p_.console->print(monitor::evaluation_line(m, p_.console->color()));
    if (p_.log) p_.log->write(m);
  }

  // Evaluation sees the averaged weights where there are any.
  static void exchange(std::span<float> average, device::Store& store) {
    std::ranges::swap_ranges(average, store.values());
    store.refresh_copies();
  }

  void save_if_new() {
    if (!p_.saver || last_saved_ == at_.step) return;
    last_saved_ = at_.step;
    checkpoint::Snapshot snapshot = p_.saver->take_storage();
    save_tensors(p_.replica.store(), p_.optimizer, at_.taken(), snapshot);
    snapshot.state = o_.state;
    snapshot.state.step = at_.step;
    snapshot.state.skipped_steps = at_.skipped;
    snapshot.state.epoch = static_cast<int64_t>(at_.cursor.epoch);
    snapshot.state.batch = at_.cursor.batch;
    snapshot.state.values[kSamplesValue] = static_cast<double>(at_.samples);
    if (last_eval_ && last_eval_->step == at_.step && o_.checkpoint.best != "none") {
      const std::string& name = o_.checkpoint.best;
      const double value = name == "loss" ? last_eval_->loss : name == "top5" ? last_eval_->top5 : last_eval_->top1;
      snapshot.state.metric = checkpoint::Metric{name, value, name != "loss"};
    }
    p_.saver->save(std::move(snapshot));
  }

  void tell_failures() {
    if (!p_.console) return;
    if (p_.saver)
      if (auto failure = p_.saver->take_failure())
        p_.console->print(monitor::warning(failure->what(), p_.console->color()));
    if (p_.log)
      if (auto failure = p_.log->take_failure()) p_.console->print(monitor::warning(*failure, p_.console->color()));
  }

  void finish_saving() {
    if (p_.saver) p_.saver->finish();
    tell_failures();
  }

  const LoopParts& p_;
  const LoopOptions& o_;
  Position at_;
  const int64_t steps_per_epoch_, total_steps_;
  int64_t last_saved_;
  const double began_;
  monitor::PhaseTimer timer_;
  double lr_ = 0, gradient_norm_ = 0, loss_sum_ = 0, weight_sum_ = 0, last_loss_ = std::numeric_limits<double>::quiet_NaN();
  int64_t interval_samples_ = 0, samples_ = 0;
  int skips_in_a_row_ = 0;
  bool stop_voted_ = false;
  std::optional<monitor::EvaluationMetrics> last_eval_;
};

}  // namespace

int64_t total_steps(const TrainOptions& options, int64_t steps_per_epoch) {
  const int64_t by_epochs = options.epochs * steps_per_epoch;
  if (options.steps > 0 && by_epochs > 0) return std::min(options.steps, by_epochs);
  return std::max(options.steps, by_epochs);
}

LoopResult run_loop(const LoopParts& parts, const LoopOptions& options, Position position) {
  return Loop(parts, options, position).run();
}

}  // namespace lockstep::train
