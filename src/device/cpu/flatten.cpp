#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

// Nothing moves: the reader takes the memory as it lies, the gradient comes back the same way.
class FlattenKernel final : public Kernel {
 public:
  FlattenKernel(const nn::Node& node, Lowering& low)
      : node_(node), x_(low.read_as(node.inputs[0], low.type(node.output))) {
    low.alias(node.output, x_);
  }
  void lower_backward(Lowering& low) override {
    low.give_gradient(node_.inputs[0], low.gradient(node_.output, x_.md));
  }
  void bind(const std::vector<Slot>&) override {}

 private:
  const nn::Node& node_;
  Tensor x_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Flatten&, const nn::Node& node, Lowering& low) {
  return std::make_unique<FlattenKernel>(node, low);
}

}  // namespace lockstep::device::cpu
