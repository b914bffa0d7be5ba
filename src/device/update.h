// The optimizers' arithmetic, element by element, shared by every device.
#pragma once

#include <cmath>
#include <span>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::device {

/// SGD as torch.optim.SGD (dampening 0): m = momentum * m + g; p -= lr * (nesterov ? g + momentum * m : m).
struct SgdStep {
  float lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

/// AdamW as torch.optim.AdamW: p *= 1 - lr * decay; p -= lr / bias1 * m / (sqrt(v / bias2) + eps).
struct AdamWStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float bias1 = 1, bias2 = 1;  ///< 1 - beta^t
};

/// One range of the flat storage that shares a weight decay, with all that the update reads and writes.
struct UpdateRange {
  std::span<float> parameters, moment1, moment2, average;  ///< moments and average may be empty when unused
  std::span<const float> gradients;
  float gradient_factor = 1;  ///< clipping and the count correction, applied to each gradient first
  float ema_decay = 0;        ///< average = decay * average + (1 - decay) * parameter
};

LOCKSTEP_HOST_DEVICE inline void sgd(const SgdStep& s, float g, float& p, float& m) {
  g += s.weight_decay * p;
  m = s.momentum * m + g;
  p -= s.lr * (s.nesterov ? g + s.momentum * m : m);
}

LOCKSTEP_HOST_DEVICE inline void adamw(const AdamWStep& s, float g, float& p, float& m, float& v) {
  p *= 1.0f - s.lr * s.weight_decay;
  m = s.beta1 * m + (1.0f - s.beta1) * g;
  v = s.beta2 * v + (1.0f - s.beta2) * g * g;
  p -= s.lr / s.bias1 * m / (std::sqrt(v / s.bias2) + s.eps);
}

LOCKSTEP_HOST_DEVICE inline float ema(float average, float decay, float p) {
  return decay * average + (1.0f - decay) * p;
}

}  // namespace lockstep::device
