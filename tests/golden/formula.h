// Deterministic numbers that formula.py produces bit for bit: parameters, images and labels of the
// whole-network goldens, so that no weights need storing. See there for why each distribution is as it is.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"

namespace lockstep::golden {

/// One name's stream of numbers; the i-th is a function of (name, i).
class Formula {
 public:
  explicit Formula(std::string_view name) {
    for (char c : name) key_ = (key_ ^ static_cast<unsigned char>(c)) * 16777619u;  // FNV-1a
  }
  uint32_t word(uint64_t i) const {
    uint32_t h = key_ + static_cast<uint32_t>(i) * 0x9E3779B9u;  // then MurmurHash3's finaliser
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
  }
  /// In [-1, 1), a multiple of 2^-23.
  float unit(uint64_t i) const {
    return static_cast<float>(static_cast<int32_t>(word(i) >> 8) - (1 << 23)) * 0x1p-23f;
  }

 private:
  uint32_t key_ = 2166136261u;
};

/// A parameter in PyTorch's logical order. `norm`: it belongs to a batch norm.
inline std::vector<float> parameter(const std::string& name, const Shape& shape, bool norm) {
  const Formula f(name);
  std::vector<float> p(static_cast<size_t>(shape.count()));
  const float scale = static_cast<float>(std::sqrt(6.0 / static_cast<double>(shape.count() / shape[0])));
  for (size_t i = 0; i < p.size(); ++i) {
    const float u = f.unit(i);
    if (norm && name.ends_with("weight"))
      p[i] = 0.625f + u * 0.125f;
    else if (norm)
      p[i] = (f.word(i) % 4 == 0 ? -1.0f : 1.0f) * (1.0f + u * 0.25f);
    else
      p[i] = u * (shape.rank() == 1 ? 0.125f : scale);
  }
  return p;
}

/// Which entries of the gradient of `name` are stored.
inline std::vector<int64_t> sample_indices(const std::string& name, int64_t count, int samples) {
  const Formula f("sample/" + name);
  std::vector<int64_t> at;
  for (int i = 0; i < samples; ++i)
    at.push_back(static_cast<int64_t>(f.word(static_cast<uint64_t>(i))) % count);
  return at;
}

/// The dot product of a gradient, in logical order, with the stream "project/" + name: every entry counts.
inline double projection(const std::string& name, const float* values, int64_t count) {
  const Formula f("project/" + name);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{values[i]} * double{f.unit(static_cast<uint64_t>(i))};
  return sum;
}

inline std::vector<int32_t> labels(const std::string& name, int64_t batch, int64_t classes) {
  const Formula f("labels/" + name);
  std::vector<int32_t> y;
  for (int64_t i = 0; i < batch; ++i)
    y.push_back(static_cast<int32_t>(f.word(static_cast<uint64_t>(i)) % static_cast<uint32_t>(classes)));
  return y;
}

/// [labels.size(), C, H, W]: noise plus a pattern of the label. `sample` is [C, H, W].
inline std::vector<float> images(const std::string& name, const Shape& sample,
                                 const std::vector<int32_t>& labels) {
  const Formula noise("images/" + name);
  std::vector<float> x;
  for (int32_t label : labels) {
    const Formula pattern("pattern/" + std::to_string(label));
    for (int64_t i = 0; i < sample.count(); ++i)
      x.push_back(noise.unit(x.size()) + pattern.unit(static_cast<uint64_t>(i)));
  }
  return x;
}

}  // namespace lockstep::golden
