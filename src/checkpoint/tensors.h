// Named host tensors: what a model expects, the storage of a snapshot, and conversion of other people's
// dtypes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/huge_buffer.h"

namespace lockstep::checkpoint {

struct TensorSpec {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::f32;
  bool operator==(const TensorSpec&) const = default;
};

/// Host copies of named tensors in one allocation, which the next snapshot of the same model reuses.
class TensorStorage {
 public:
  /// Sets names and shapes. Keeps memory (and contents, when `specs` are those of last time) that is large
  /// enough.
  void layout(std::vector<TensorSpec> specs);

  size_t size() const { return specs_.size(); }
  const TensorSpec& spec(size_t i) const { return specs_[i]; }
  std::span<std::byte> bytes(size_t i) const;
  /// The elements of tensor i, aligned to 64 bytes.
  template <class T>
  std::span<T> as(size_t i) const {
    auto b = bytes(i);
    return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
  }
  std::vector<TensorView> views() const;

 private:
  std::vector<TensorSpec> specs_;
  std::vector<size_t> offsets_;
  HugeBuffer memory_;
};

/// f32, f64, bf16 and f16 to f32, rounded to nearest even. `out` holds tensor.shape.count() values. Throws
/// UserError for integers.
void to_f32(const TensorView& tensor, std::span<float> out);

float bf16_to_f32(uint16_t bits);
float f16_to_f32(uint16_t bits);

}  // namespace lockstep::checkpoint
