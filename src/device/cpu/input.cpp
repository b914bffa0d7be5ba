#include <algorithm>

#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

// The batch's images [N, C, H, W]. A convolution that takes this layout reads them where the loader put them;
// the copy here is for any other reader, and the program leaves it out where there is none.
class InputKernel final : public Kernel {
 public:
  InputKernel(const nn::Node& node, Lowering& low) {
    const memory::desc md(dims_of(low.graph.shape(node.output)), memory::data_type::f32,
                          memory::format_tag::nchw);
    x_ = low.make(node.output, md);
  }
  void bind(const std::vector<Slot>& slots) override {
    data_ = reinterpret_cast<float*>(elements(slots, x_).data);
  }
  void forward(const Pass& pass) override { std::copy_n(pass.batch.images, padded_count(x_.md), data_); }

 private:
  Tensor x_;
  float* data_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Input&, const nn::Node& node, Lowering& low) {
  return std::make_unique<InputKernel>(node, low);
}

}  // namespace lockstep::device::cpu
