#include "train/optimizer.h"

#include <cmath>

namespace lockstep::train {

Optimizer::Optimizer(device::Device& device, device::Store& store, const OptimOptions& options,
                     double ema_decay)
    : device_(device), store_(store), options_(options), ema_decay_(static_cast<float>(ema_decay)) {
  for (const device::ParameterSlot& slot : store.parameters()) {
    const bool decay = options.decay_norm_bias || !slot.norm_or_bias;
    if (groups_.empty() || groups_.back().decay != decay) groups_.push_back({slot.range, decay});
    groups_.back().range.end = slot.range.end;
  }
  const size_t bytes = store.values().size_bytes();
  if (options.name == "adamw" || options.momentum > 0) moment1_ = HugeBuffer(bytes);
  if (options.name == "adamw") moment2_ = HugeBuffer(bytes);
  if (ema_decay > 0) average_ = HugeBuffer(bytes);
  reset_average();
}

void Optimizer::reset_average() {
  if (average_.bytes() > 0) device_.copy(store_.values(), average_.as<float>());
}

void Optimizer::update(double lr, int64_t taken, float gradient_factor) {
  auto part = [](std::span<float> flat, const device::Range& r) {
    return flat.empty() ? flat : flat.subspan(r.begin, r.size());
  };
  for (const Group& g : groups_) {
    const device::UpdateRange range{part(store_.values(), g.range),
                                    part(moment1_.as<float>(), g.range),
                                    part(moment2_.as<float>(), g.range),
                                    part(average_.as<float>(), g.range),
                                    part(store_.gradients(), g.range),
                                    gradient_factor,
                                    ema_decay_};
    const auto decay = static_cast<float>(g.decay ? options_.weight_decay : 0);
    if (options_.name == "adamw") {
      const auto t = static_cast<double>(taken + 1);
      device_.update(device::AdamWStep{static_cast<float>(lr), static_cast<float>(options_.beta1),
                                       static_cast<float>(options_.beta2), static_cast<float>(options_.eps),
                                       decay, static_cast<float>(1 - std::pow(options_.beta1, t)),
                                       static_cast<float>(1 - std::pow(options_.beta2, t))},
                     range);
    } else {
      device_.update(device::SgdStep{static_cast<float>(lr), static_cast<float>(options_.momentum), decay,
                                     options_.nesterov},
                     range);
    }
  }
  store_.refresh_copies();
}

std::vector<std::pair<std::string, std::span<float>>> Optimizer::state() {
  std::vector<std::pair<std::string, std::span<float>>> all;
  const bool adamw = options_.name == "adamw";
  if (moment1_.bytes() > 0) all.emplace_back(adamw ? "exp_avg" : "momentum_buffer", moment1_.as<float>());
  if (moment2_.bytes() > 0) all.emplace_back("exp_avg_sq", moment2_.as<float>());
  if (average_.bytes() > 0) all.emplace_back("ema", average_.as<float>());
  return all;
}

size_t Optimizer::bytes() const { return moment1_.bytes() + moment2_.bytes() + average_.bytes(); }

}  // namespace lockstep::train
