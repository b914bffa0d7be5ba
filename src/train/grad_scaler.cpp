#include "train/grad_scaler.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {

constexpr float kFloor = 1;

void GradScaler::update(bool found_inf) {
  exhausted_ = found_inf && scale_ <= kFloor;
  if (found_inf) {
    scale_ = std::max(kFloor, static_cast<float>(scale_ * options_.backoff_factor));
    growth_tracker_ = 0;
  } else if (++growth_tracker_ >= options_.growth_interval) {
    const auto grown = static_cast<float>(scale_ * options_.growth_factor);
    if (std::isfinite(grown)) scale_ = grown;
    growth_tracker_ = 0;
  }
}

void GradScaler::restore(float scale, int64_t growth_tracker) {
  scale_ = scale;
  growth_tracker_ = growth_tracker;
  exhausted_ = false;
}

}  // namespace lockstep::train
