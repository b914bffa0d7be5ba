#include "train/step.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {

using monitor::Phase;

Step::Step(Replica& replica, comm::Collective& collective, Optimizer* optimizer, const StepOptions& options)
    : replica_(replica),
      collective_(collective),
      optimizer_(optimizer),
      o_(options),
      sum_(collective),
      gradient_tree_(replica.device(), replica.store().gradients().size(), options.plan.accumulation,
                     options.plan.shards),
      statistics_tree_(replica.device(), replica.store().statistics().size(), options.plan.accumulation,
                       options.plan.shards),
      reduced_(replica.store().statistics().size() + 1) {
  if (options.scaler) scaler_.emplace(*options.scaler);
  if (options.sync_batch_norm) replica.store().sum_over_devices(&sum_);
  const auto bucket = static_cast<int64_t>(options.bucket_mib * (1 << 20) / sizeof(float));
  int64_t begin = 0;
  for (const device::ParameterSlot& slot : replica.store().parameters())
    if (slot.range.end - begin >= bucket) bucket_ends_.push_back(begin = slot.range.end);
  const int64_t end = replica.store().parameters().back().range.end;
  if (bucket_ends_.empty() || bucket_ends_.back() != end) bucket_ends_.push_back(end);
  handles_.resize(bucket_ends_.size() + 1);
}

void Step::submit_ready(int64_t ready_end) {
  std::span<float> gradients = replica_.store().gradients();
  while (next_bucket_ < bucket_ends_.size() && bucket_ends_[next_bucket_] <= ready_end) {
    const std::span<float> ready = bucket(gradients, next_bucket_);
    const size_t begin = ready.data() - gradients.data();
    gradient_tree_.finish(gradients, begin, begin + ready.size());
    handles_[next_bucket_] = o_.root ? collective_.reduce(ready, 0) : collective_.all_reduce(ready, o_.wire);
    ++next_bucket_;
  }
}

std::span<float> Step::bucket(std::span<float> flat, size_t i) const {
  const int64_t begin = i == 0 ? 0 : bucket_ends_[i - 1];
  return flat.subspan(begin, bucket_ends_[i] - begin);
}

void Step::share_parameters() {
  if (!o_.root) return;
  device::Store& store = replica_.store();
  for (size_t i = 0; i < bucket_ends_.size(); ++i)
    handles_[i] = collective_.broadcast(bucket(store.values(), i), 0);
  for (size_t i = 0; i < bucket_ends_.size(); ++i) handles_[i].wait();
  if (collective_.device() != 0) store.refresh_copies();
}

void Step::Sum::sum(std::span<double> values) {
  timer_->enter(Phase::exposed_comm);
  collective_.all_reduce(values).wait();
  timer_->enter(pass_);
}

void Step::run_shard(const nn::Batch& batch, int64_t step, bool last, monitor::PhaseTimer& timer) {
  device::Store& store = replica_.store();
  device::Program* program = nullptr;
  timer.enter(Phase::forward);
  sum_.within(timer, Phase::forward);
  if (batch.count > 0) {
    program = &replica_.program(device::Mode::train, batch.count);
    program->load(batch);
    program->forward({o_.seed, static_cast<uint32_t>(step),
                      static_cast<float>(1.0 / static_cast<double>(o_.plan.global)),
                      static_cast<float>(batch.count) / static_cast<float>(o_.plan.micro),
                      scaler_ ? scaler_->scale() : 1.0f});
  } else if (o_.sync_batch_norm) {
    program = &replica_.program(device::Mode::train, o_.plan.micro);
    program->forward_empty();
  } else {
    std::ranges::fill(store.statistics(), 0.0f);
  }
  timer.enter(Phase::backward);
  sum_.within(timer, Phase::backward);
  if (last) {
    std::span<float> statistics = store.statistics();
    statistics_tree_.finish(statistics, 0, statistics.size());
    std::ranges::copy(statistics, reduced_.begin());
    handles_.back() = collective_.all_reduce(std::span<float>(reduced_));
  }
  const auto ready = [this, last](device::Range range) {
    if (last) submit_ready(range.end);
  };
  if (program) {
    batch.count > 0 ? program->backward(ready) : program->backward_empty(ready);
  } else {
    replica_.device().fill(store.gradients(), 0.0f);
  }
  if (last) {
    submit_ready(bucket_ends_.back());
  } else {
    gradient_tree_.add(store.gradients());
    statistics_tree_.add(store.statistics());
  }
}

StepOutcome Step::run(const std::function<const nn::Batch&()>& next, int64_t step, int64_t taken, double lr,
                      bool vote_to_stop, monitor::PhaseTimer& timer) {
  gradient_tree_.begin();
  statistics_tree_.begin();
  next_bucket_ = 0;
  reduced_.back() = vote_to_stop ? 1.0f : 0.0f;
  for (int64_t shard = 0; shard < o_.plan.accumulation; ++shard) {
    timer.enter(Phase::data);
    const nn::Batch& batch = next();
    run_shard(batch, step, shard + 1 == o_.plan.accumulation, timer);
  }
  timer.enter(Phase::exposed_comm);
  for (const comm::Handle& h : handles_) h.wait();
  timer.enter(Phase::optimizer);

  device::Store& store = replica_.store();
  const std::span<const float> statistics(reduced_.data(), reduced_.size() - 1);
  StepOutcome outcome;
  outcome.metrics = store.metrics(statistics);
  outcome.stop_votes = static_cast<int>(reduced_.back());
  if (optimizer_) update(lr, taken, outcome);
  if (o_.root) {
    timer.enter(Phase::exposed_comm);
    verdict_ = {outcome.taken ? 1.0f : 0.0f, outcome.found_inf ? 1.0f : 0.0f,
                static_cast<float>(outcome.gradient_norm)};
    collective_.broadcast(verdict_, 0).wait();
    if (!optimizer_) {
      outcome.taken = verdict_[0] != 0;
      outcome.found_inf = verdict_[1] != 0;
      outcome.gradient_norm = verdict_[2];
    }
    if (outcome.taken) share_parameters();
    timer.enter(Phase::optimizer);
  }
  if (outcome.taken) store.update_running_statistics(statistics);
  if (scaler_ && outcome.metrics.weight_sum > 0) scaler_->update(outcome.found_inf);
  timer.enter(Phase::other);
  return outcome;
}

void Step::update(double lr, int64_t taken, StepOutcome& outcome) {
  device::Store& store = replica_.store();
  const double weight = outcome.metrics.weight_sum;
  double factor = weight > 0 ? static_cast<double>(o_.plan.global) / weight : 0;
  if (scaler_) factor /= scaler_->scale();
  outcome.gradient_norm = std::sqrt(replica_.device().sum_of_squares(store.gradients())) * factor;
  outcome.found_inf = !std::isfinite(outcome.gradient_norm);
  outcome.taken = weight > 0 && !outcome.found_inf;
  if (!outcome.taken) return;
  // As torch.nn.utils.clip_grad_norm_.
  if (o_.clip_norm > 0) factor *= std::min(1.0, o_.clip_norm / (outcome.gradient_norm + 1e-6));
  optimizer_->update(lr, taken, static_cast<float>(factor));
}

std::string Step::first_non_finite() const {
  device::Store& store = replica_.store();
  for (const device::ParameterSlot& slot : store.parameters())
    if (!std::isfinite(
            replica_.device().sum_of_squares(store.gradients().subspan(slot.range.begin, slot.range.size()))))
      return slot.name;
  return "";
}

}  // namespace lockstep::train
