#include <algorithm>

#include "core/random.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/simd.h"

namespace lockstep::device::cpu {

namespace {

// The mask is drawn again in backward instead of being stored: it is a function of its key.
class DropoutKernel final : public Kernel {
 public:
  DropoutKernel(const nn::Dropout& op, const nn::Node& node, Lowering& low)
      : op_(op),
        node_(node),
        identity_(!low.training || op.p == 0),
        x_(low.read_as(node.inputs[0], low.type(node.output))) {
    const Dims dims = dims_of(x_.md);
    samples_ = dims[0], channels_ = dims[1], pixels_ = dims.size() == 4 ? dims[2] * dims[3] : 1;
    block_ =
        x_.md == low.canonical(Shape(std::span<const int64_t>(dims.data(), dims.size())), type_of(x_.md)) &&
                dims.size() == 4
            ? channel_block()
            : channels_;
    if (identity_) {
      low.alias(node.output, x_);
    } else {
      y_ = low.make(node.output, x_.md);
    }
  }
  void lower_backward(Lowering& low) override {
    dy_ = low.gradient(node_.output, x_.md);
    if (identity_) {
      low.give_gradient(node_.inputs[0], dy_);
    } else {
      dx_ = gradient_in_place(low, node_.inputs[0], dy_);
    }
  }
  void bind(const std::vector<Slot>& slots) override {
    x_data_ = elements(slots, x_), y_data_ = elements(slots, y_);
    dy_data_ = elements(slots, dy_), dx_data_ = elements(slots, dx_);
  }
  void forward(const Pass& pass) override {
    if (!identity_) mask(pass, x_data_, y_data_);
  }
  void backward(const Pass& pass) override {
    if (!identity_ && dx_data_) mask(pass, dy_data_, dx_data_);
  }

 private:
  void mask(const Pass& pass, const Elements& from, const Elements& to) const {
    if (from.storage == 0) {
      mask_in<F32>(pass, from.data, to.data);
    } else if (from.storage == 1) {
      mask_in<Bf16>(pass, from.data, to.data);
    } else {
      mask_in<Fp16>(pass, from.data, to.data);
    }
  }
  template <class S>
  void mask_in(const Pass& pass, const void* from, void* to) const {
    const float scale = static_cast<float>(1.0 / (1.0 - op_.p));
    const auto threshold = static_cast<uint32_t>(std::min(op_.p * 0x1p32, 4294967295.0));  // dropped below it
    const int64_t blocks = (channels_ + block_ - 1) / block_;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < samples_; ++n)
      for (int64_t b = 0; b < blocks; ++b) {
        const RandomKey key{pass.key.seed, pass.key.step, pass.batch.samples[n], Purpose::dropout,
                            op_.stream};
        for (int64_t i = 0; i < pixels_; ++i) {
          const int64_t at = ((n * blocks + b) * pixels_ + i) * block_;
          const int64_t element = i * channels_ + b * block_;  // channels-last
          const int64_t here = std::min(block_, channels_ - b * block_);
          Philox words{};
          uint32_t drawn = UINT32_MAX;
          for (int64_t k = 0; k < here; ++k) {
            const auto group = static_cast<uint32_t>((element + k) / 4);
            if (group != drawn) words = random_block(key, group), drawn = group;
            const float kept = load<S, float>(from, at + k) * scale;
            store<S, float>(to, at + k, words[(element + k) % 4] < threshold ? 0.0f : kept);
          }
          for (int64_t k = here; k < block_; ++k) store<S, float>(to, at + k, 0.0f);
        }
      }
  }

  const nn::Dropout op_;
  const nn::Node& node_;
  const bool identity_;
  int64_t samples_ = 0, channels_ = 0, pixels_ = 0, block_ = 0;
  Tensor x_, y_, dy_, dx_;
  Elements x_data_, y_data_, dy_data_, dx_data_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Dropout& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<DropoutKernel>(op, node, low);
}

}  // namespace lockstep::device::cpu
