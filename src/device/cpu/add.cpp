#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

class AddKernel final : public Kernel {
 public:
  AddKernel(const nn::Add& op, const nn::Node& node, Lowering& low) : op_(op), node_(node) {
    const memory::desc md = low.canonical(low.graph.shape(node.output));
    a_ = low.convert(low.read(node.inputs[0]), md);
    b_ = low.convert(low.read(node.inputs[1]), md);
    y_ = low.make(node.output, md);
  }
  void lower_backward(Lowering& low) override {
    dy_ = low.gradient(node_.output, y_.md);
    dz_ = dy_;
    if (op_.relu) {
      low.use(y_);
      if (!low.exclusive(dy_)) dz_ = {y_.md, low.scratch(y_.md.get_size())};
    }
    for (nn::ValueId v : node_.inputs) low.give_gradient(v, dz_);
  }
  void bind(const std::vector<Slot>& slots) override {
    a_data_ = address(slots, a_), b_data_ = address(slots, b_), y_data_ = address(slots, y_);
    dy_data_ = address(slots, dy_), dz_data_ = address(slots, dz_);
  }
  void forward(const Pass&) override {
    const int64_t count = padded_count(y_.md);
    const bool relu = op_.relu;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      const float sum = a_data_[i] + b_data_[i];
      y_data_[i] = relu && sum < 0 ? 0 : sum;
    }
  }
  void backward(const Pass&) override {
    if (!op_.relu) return;
    const int64_t count = padded_count(y_.md);
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) dz_data_[i] = y_data_[i] > 0 ? dy_data_[i] : 0;
  }

 private:
  const nn::Add op_;
  const nn::Node& node_;
  Tensor a_, b_, y_, dy_, dz_;
  float *a_data_ = nullptr, *b_data_ = nullptr, *y_data_ = nullptr, *dy_data_ = nullptr, *dz_data_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Add& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<AddKernel>(op, node, low);
}

}  // namespace lockstep::device::cpu
