#include "train/step.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::train {

using monitor::Phase;

Step::Step(Replica& replica, comm::Collective& collective, Optimizer& optimizer, const BatchPlan& plan,
           uint64_t seed, double clip_norm, double bucket_mib)
    : replica_(replica),
      collective_(collective),
      optimizer_(optimizer),
      plan_(plan),
      seed_(seed),
      clip_norm_(clip_norm),
      gradient_tree_(replica.device(), replica.store().gradients().size(), plan.accumulation),
      statistics_tree_(replica.device(), replica.store().statistics().size(), plan.accumulation),
      reduced_(replica.store().statistics().size() + 1) {
  const auto bucket = static_cast<int64_t>(bucket_mib * (1 << 20) / sizeof(float));
  int64_t begin = 0;
  for (const device::ParameterSlot& slot : replica.store().parameters())
    if (slot.range.end - begin >= bucket) bucket_ends_.push_back(begin = slot.range.end);
  const int64_t end = replica.store().parameters().back().range.end;
  if (bucket_ends_.empty() || bucket_ends_.back() != end) bucket_ends_.push_back(end);
  handles_.resize(bucket_ends_.size() + 1);
}

size_t Step::bytes() const {
  const auto levels = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(plan_.accumulation - 1)));
  return levels * replica_.store().gradients().size_bytes();
}

void Step::submit_ready(int64_t ready_end) {
  std::span<float> gradients = replica_.store().gradients();
  while (next_bucket_ < bucket_ends_.size() && bucket_ends_[next_bucket_] <= ready_end) {
    const int64_t begin = next_bucket_ == 0 ? 0 : bucket_ends_[next_bucket_ - 1],
                  end = bucket_ends_[next_bucket_];
    gradient_tree_.finish(gradients, begin, end);
    handles_[next_bucket_] = collective_.all_reduce(gradients.subspan(begin, end - begin));
    ++next_bucket_;
  }
}

void Step::run_shard(const nn::Batch& batch, int64_t step, bool last, monitor::PhaseTimer& timer) {
  device::Store& store = replica_.store();
  device::Program* program = nullptr;
  if (batch.count > 0) {
    timer.enter(Phase::forward);
    program = &replica_.program(device::Mode::train, batch.count);
    program->load(batch);
    program->forward({seed_, static_cast<uint32_t>(step),
                      static_cast<float>(1.0 / static_cast<double>(plan_.global)),
                      static_cast<float>(batch.count) / static_cast<float>(plan_.micro)});
  } else {
    std::ranges::fill(store.statistics(), 0.0f);
  }
  timer.enter(Phase::backward);
  if (last) {
    std::span<float> statistics = store.statistics();
    statistics_tree_.finish(statistics, 0, statistics.size());
    std::ranges::copy(statistics, reduced_.begin());
    handles_.back() = collective_.all_reduce(std::span<float>(reduced_));
  }
  if (program) {
    program->backward([&](device::Range ready) {
      if (last) submit_ready(ready.end);
    });
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
  for (int64_t shard = 0; shard < plan_.accumulation; ++shard) {
    timer.enter(Phase::data);
    const nn::Batch& batch = next();
    run_shard(batch, step, shard + 1 == plan_.accumulation, timer);
  }
  timer.enter(Phase::exposed_comm);
  for (const comm::Handle& h : handles_) h.wait();
  timer.enter(Phase::optimizer);

  device::Store& store = replica_.store();
  const std::span<const float> statistics(reduced_.data(), reduced_.size() - 1);
  StepOutcome outcome;
  outcome.metrics = store.metrics(statistics);
  outcome.stop_votes = static_cast<int>(reduced_.back());
  const double weight = outcome.metrics.weight_sum;
  double factor = weight > 0 ? static_cast<double>(plan_.global) / weight : 0;
  outcome.gradient_norm = std::sqrt(replica_.device().sum_of_squares(store.gradients())) * factor;
  outcome.taken = weight > 0 && std::isfinite(outcome.gradient_norm);
  if (outcome.taken) {
    // As torch.nn.utils.clip_grad_norm_.
    if (clip_norm_ > 0) factor *= std::min(1.0, clip_norm_ / (outcome.gradient_norm + 1e-6));
    optimizer_.update(lr, taken, static_cast<float>(factor));
    store.update_running_statistics(statistics);
  }
  timer.enter(Phase::other);
  return outcome;
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
