#include "checkpoint/tensors.h"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <cstring>

#include "core/error.h"

namespace lockstep::checkpoint {

static size_t bytes_of(const TensorSpec& spec) {
  return static_cast<size_t>(spec.shape.count()) * size_of(spec.dtype);
}

void TensorStorage::layout(std::vector<TensorSpec> specs) {
  if (specs == specs_) return;
  specs_ = std::move(specs);
  offsets_.clear();
  size_t at = 0;
  for (const TensorSpec& spec : specs_) {
    offsets_.push_back(at);
    at += (bytes_of(spec) + 63) / 64 * 64;
  }
  if (at > memory_.bytes()) memory_ = HugeBuffer(at);
}

std::span<std::byte> TensorStorage::bytes(size_t i) const {
  return {memory_.data() + offsets_[i], bytes_of(specs_[i])};
}

std::vector<TensorView> TensorStorage::views() const {
  std::vector<TensorView> views;
  for (size_t i = 0; i < specs_.size(); ++i)
    views.push_back({specs_[i].name, specs_[i].dtype, specs_[i].shape, bytes(i)});
  return views;
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 0x1Fu,
                 mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// By memcpy, because the data of a file may begin at any byte.
template <class T, class Convert>
static void convert(std::span<const std::byte> from, std::span<float> out, Convert value) {
  for (size_t i = 0; i < out.size(); ++i) {
    T element;
    std::memcpy(&element, from.data() + i * sizeof(T), sizeof(T));
    out[i] = value(element);
  }
}

void to_f32(const TensorView& tensor, std::span<float> out) {
  assert(out.size() == static_cast<size_t>(tensor.shape.count()));
  switch (tensor.dtype) {
    case Dtype::f32:
      if (!out.empty()) std::memcpy(out.data(), tensor.data.data(), out.size_bytes());
      return;
    case Dtype::f64:
      return convert<double>(tensor.data, out, [](double v) { return static_cast<float>(v); });
    case Dtype::bf16:
      return convert<uint16_t>(tensor.data, out, bf16_to_f32);
    case Dtype::f16:
      return convert<uint16_t>(tensor.data, out, f16_to_f32);
    default:
      throw UserError(fmt::format("tensor '{}' cannot be used as weights", tensor.name),
                      fmt::format("its dtype is '{}'", name_of(tensor.dtype)),
                      "store it as f32, f64, bf16 or f16");
  }
}

}  // namespace lockstep::checkpoint
