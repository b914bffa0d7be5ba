#include <algorithm>

#include "device/cpu/elementwise.h"
#include "device/cpu/simd.h"

namespace lockstep::device::cpu {

namespace {

// Channels may start anywhere in a block, so lines are moved channel by channel, whole blocks at once where
// they match.
class ConcatKernel final : public Kernel {
 public:
  ConcatKernel(const nn::Node& node, Lowering& low) : node_(node), B_(channel_block()) {
    for (nn::ValueId v : node.inputs) {
      const Shape& s = low.graph.shape(v);
      inputs_.push_back(low.convert(low.read(v), low.canonical(s, low.type(node.output))));
      channels_.push_back(s[1]);
    }
    const Shape& out = low.graph.shape(node.output);
    samples_ = out[0], out_channels_ = out[1], pixels_ = out[2] * out[3];
    y_ = low.make(node.output, low.canonical(node.output));
  }
  void lower_backward(Lowering& low) override {
    dy_ = low.gradient(node_.output, y_.md);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool wanted = low.wants_gradient(node_.inputs[i]);
      dx_.push_back(wanted ? low.make_gradient(node_.inputs[i], inputs_[i].md) : Tensor{});
    }
  }
  void bind(const std::vector<Slot>& slots) override {
    x_data_.clear(), dx_data_.clear();
    for (const Tensor& t : inputs_) x_data_.push_back(elements(slots, t));
    for (const Tensor& t : dx_) dx_data_.push_back(elements(slots, t));
    y_data_ = elements(slots, y_), dy_data_ = elements(slots, dy_);
  }
  void forward(const Pass&) override {
    std::fill_n(y_data_.data, y_.md.get_size(), std::byte{0});
    int64_t first = 0;
    for (size_t i = 0; i < inputs_.size(); first += channels_[i++])
      move(x_data_[i], channels_[i], 0, y_data_, out_channels_, first, channels_[i]);
  }
  void backward(const Pass&) override {
    int64_t first = 0;
    for (size_t i = 0; i < inputs_.size(); first += channels_[i++]) {
      if (!dx_data_[i]) continue;
      std::fill_n(dx_data_[i].data, dx_[i].md.get_size(), std::byte{0});
      move(dy_data_, out_channels_, first, dx_data_[i], channels_[i], 0, channels_[i]);
    }
  }

 private:
  int64_t blocks(int64_t channels) const { return (channels + B_ - 1) / B_; }
  int64_t at(int64_t channels, int64_t n, int64_t c) const {
    return ((n * blocks(channels) + c / B_) * pixels_) * B_ + c % B_;
  }
  // `count` channels of `from` (which has `from_channels`) starting at from_first into `to` starting at
  // to_first.
  void move(const Elements& from, int64_t from_channels, int64_t from_first, const Elements& to,
            int64_t to_channels, int64_t to_first, int64_t count) const {
    if (from.size() == sizeof(float)) {
      move_elements(reinterpret_cast<const uint32_t*>(from.data), from_channels, from_first,
                    reinterpret_cast<uint32_t*>(to.data), to_channels, to_first, count);
    } else {
      move_elements(reinterpret_cast<const uint16_t*>(from.data), from_channels, from_first,
                    reinterpret_cast<uint16_t*>(to.data), to_channels, to_first, count);
    }
  }
  template <class Element>
  void move_elements(const Element* from, int64_t from_channels, int64_t from_first, Element* to,
                     int64_t to_channels, int64_t to_first, int64_t count) const {
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < samples_; ++n)
      for (int64_t c = 0; c < count;) {
        const Element* source = from + at(from_channels, n, from_first + c);
        Element* target = to + at(to_channels, n, to_first + c);
        if ((from_first + c) % B_ == 0 && (to_first + c) % B_ == 0 && count - c >= B_) {
          std::copy_n(source, pixels_ * B_, target);
          c += B_;
        } else {
          for (int64_t i = 0; i < pixels_; ++i) target[i * B_] = source[i * B_];
          ++c;
        }
      }
  }

  const nn::Node& node_;
  const int64_t B_;
  std::vector<Tensor> inputs_, dx_;
  std::vector<int64_t> channels_;
  Tensor y_, dy_;
  int64_t samples_ = 0, out_channels_ = 0, pixels_ = 0;
  std::vector<Elements> x_data_, dx_data_;
  Elements y_data_, dy_data_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Concat&, const nn::Node& node, Lowering& low) {
  return std::make_unique<ConcatKernel>(node, low);
}

}  // namespace lockstep::device::cpu
