#include "device/cpu/program.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::device::cpu {

CpuProgram::CpuProgram(const nn::Graph& fused, CpuStore& store, Mode mode)
    : graph_(fused), store_(store), stream_(store.engine()) {
  Lowering low(graph_, store, mode);
  const int n = static_cast<int>(graph_.nodes.size());

  low.sequence = &forward_;
  for (int i = 0; i < n; ++i) {
    low.set_time(i);
    const nn::Node& node = graph_.nodes[i];
    kernels_.push_back(std::visit([&](const auto& op) { return lower(op, node, low); }, node.op));
    low.place(kernels_.back().get());
  }
  if (!low.input_read) forward_.erase(forward_.begin());  // the input kernel's copy
  const Tensor logits = low.read(graph_.nodes.back().inputs[0]);
  logits_slot_ = logits.slot;

  if (low.training) {
    std::vector<Kernel*> sequence;
    low.sequence = &sequence;
    for (int i = n - 1; i >= 0; --i) {
      low.set_time(2 * n - 1 - i);
      kernels_[i]->lower_backward(low);
      low.place(kernels_[i].get());
      for (Kernel* k : sequence) backward_.push_back({k, {}});
      sequence.clear();
      const std::vector<nn::ParameterId>& p = graph_.nodes[i].parameters;
      if (!p.empty()) backward_.back().ready = {store.range(p.front()).begin, store.range(p.back()).end};
    }
  }

  std::vector<nn::Lifetime> lifetimes;
  for (const Slot& s : low.slots) lifetimes.push_back({s.fixed ? 0 : s.bytes, s.first, s.last});
  nn::MemoryPlan plan = nn::plan_memory(lifetimes);
  offsets_ = std::move(plan.offsets);
  slots_ = std::move(low.slots);
  extra_ = std::move(low.extra_kernels);
  memory_ = {plan.bytes, plan.lower_bound};
  counts_ = {low.activation_reorders, low.primitives};
  store.reserve_arena(plan.bytes);
}

ProgramCounts CpuProgram::counts() const { return counts_; }

void CpuProgram::bind() {
  if (bound_generation_ == store_.generation()) return;
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].address = slots_[i].fixed ? slots_[i].fixed : store_.arena() + offsets_[i];
  for (auto& k : kernels_) k->bind(slots_);
  for (auto& k : extra_) k->bind(slots_);
  bound_generation_ = store_.generation();
}

void CpuProgram::load(const nn::Batch& batch) {
  if (batch.count != graph_.batch())
    throw std::logic_error("program of " + std::to_string(graph_.batch()) + " samples got " +
                           std::to_string(batch.count));
  bind();
  batch_ = batch;
}

void CpuProgram::forward(const PassKey& key) {
  key_ = key;
  std::span<float> statistics = store_.statistics();
  std::fill(statistics.begin(), statistics.end(), 0.0f);
  Pass pass{stream_, batch_, key_, store_.sum_over_devices()};
  for (Kernel* k : forward_) k->forward(pass);
}

void CpuProgram::backward(const std::function<void(Range)>& on_ready) {
  Pass pass{stream_, batch_, key_, store_.sum_over_devices()};
  for (const Backward& step : backward_) {
    step.kernel->backward(pass);
    if (step.ready.size() > 0) on_ready(step.ready);
  }
}

void CpuProgram::forward_empty() {
  std::span<float> statistics = store_.statistics();
  std::fill(statistics.begin(), statistics.end(), 0.0f);
  Pass pass{stream_, batch_, key_, store_.sum_over_devices()};
  for (Kernel* k : forward_) k->forward_empty(pass);
}

void CpuProgram::backward_empty(const std::function<void(Range)>& on_ready) {
  Pass pass{stream_, batch_, key_, store_.sum_over_devices()};
  std::span<float> gradients = store_.gradients();
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  for (const Backward& step : backward_) {
    step.kernel->backward_empty(pass);
    if (step.ready.size() > 0) on_ready(step.ready);
  }
}

void CpuProgram::logits(std::span<float> out) const {
  const auto* p = static_cast<const float*>(slots_[logits_slot_].address);
  std::copy(p, p + out.size(), out.begin());
}

}  // namespace lockstep::device::cpu
