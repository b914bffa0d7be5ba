#include "device/cpu/paired_weights.h"

#include <array>

#include "device/cpu/half.h"

namespace lockstep::device::cpu {

namespace {

constexpr int64_t B = 16, kBlock = B * B;  // input channel by input channel, the output channels of each

LOCKSTEP_INLINE Words<Float16> row_of(const float* block, int64_t input) {
  return Bf16::narrow<Float16>(load<Float16>(block + input * B));
}

// Two input channels for each output channel.
LOCKSTEP_SIMD void pair_inputs(const float* block, uint32_t* to) {
  for (int64_t i = 0; i < B; i += 2) {
    const Words<Float16> pairs = row_of(block, i) | (row_of(block, i + 1) << 16);
    std::memcpy(to + i / 2 * B, &pairs, sizeof pairs);
  }
}

// Two output channels for each input channel.
LOCKSTEP_SIMD void pair_outputs(const float* block, uint32_t* to) {
  uint32_t pairs[B][B / 2];
  for (int64_t i = 0; i < B; ++i) {
    const auto halves = __builtin_convertvector(row_of(block, i), WordsOf<Float16>::Halves);
    std::memcpy(pairs[i], &halves, sizeof halves);
  }
  for (int64_t o = 0; o < B / 2; ++o)
    for (int64_t i = 0; i < B; ++i) to[o * B + i] = pairs[i][o];
}

}  // namespace

std::optional<PairedWeights> PairedWeights::make(const memory::desc& from, const memory::desc& to) {
  using tag = memory::format_tag;
  const Dims dims = dims_of(from);
  if (dims.size() != 4 || from != memory::desc(dims, memory::data_type::f32, tag::ABcd16b16a)) return {};
  PairedWeights w;
  w.rows_ = (dims[0] + B - 1) / B, w.columns_ = (dims[1] + B - 1) / B, w.taps_ = dims[2] * dims[3];
  const auto is = [&](tag t) { return to == memory::desc(dims, memory::data_type::bf16, t); };
  w.columns_first_ = is(tag::BAcd8a16b2a);
  w.outputs_ = w.columns_first_ || is(tag::ABcd8a16b2a);
  if (!w.outputs_ && !is(tag::ABcd8b16a2b)) return {};
  return w;
}

void PairedWeights::share(const float* from, void* to) const {
#pragma omp for schedule(static) nowait
  for (int64_t at = 0; at < rows_ * columns_; ++at) {
    const int64_t row = at / columns_, column = at % columns_;
    const int64_t target = columns_first_ ? column * rows_ + row : at;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      const float* block = from + (at * taps_ + tap) * kBlock;
      uint32_t* pairs = static_cast<uint32_t*>(to) + (target * taps_ + tap) * kBlock / 2;
      if (outputs_) {
        pair_outputs(block, pairs);
      } else {
        pair_inputs(block, pairs);
      }
    }
  }
}

}  // namespace lockstep::device::cpu
