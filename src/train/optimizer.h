// SGD and AdamW over the flat storage, with the moving average of the weights.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/huge_buffer.h"
#include "device/device.h"
#include "train/options.h"

namespace lockstep::train {

/// Owns the moments and the average, each laid out as the parameters are.
class Optimizer {
 public:
  /// `ema_decay` 0: no average is kept.
  Optimizer(device::Device& device, device::Store& store, const OptimOptions& options, double ema_decay);

  /// One update from store.gradients() * gradient_factor; `taken` steps came before it. Then the copies
  /// derived from the parameters are made current.
  void update(double lr, int64_t taken, float gradient_factor);

  /// The average restarts from the present parameters.
  void reset_average();
  /// Flat state by the name that it has in checkpoints: momentum_buffer; exp_avg, exp_avg_sq; ema.
  std::vector<std::pair<std::string, std::span<float>>> state();
  std::span<float> average() { return average_.as<float>(); }  ///< empty when none is kept
  size_t bytes() const;

 private:
  struct Group {
    device::Range range;
    bool decay;
  };
  device::Device& device_;
  device::Store& store_;
  OptimOptions options_;
  float ema_decay_;
  std::vector<Group> groups_;  ///< neighbours that share a weight decay
  HugeBuffer moment1_, moment2_, average_;
};

}  // namespace lockstep::train
