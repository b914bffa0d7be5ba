#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

class AddKernel final : public Kernel {
 public:
  AddKernel(const nn::Add& op, const nn::Node& node, Lowering& low) : op_(op), node_(node) {
    const memory::desc md = low.canonical(node.output);
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
    a_data_ = elements(slots, a_), b_data_ = elements(slots, b_), y_data_ = elements(slots, y_);
    dy_data_ = elements(slots, dy_), dz_data_ = elements(slots, dz_);
  }
  void forward(const Pass&) override { add(a_data_, b_data_, op_.relu, y_data_, padded_count(y_.md)); }
  void backward(const Pass&) override {
    if (op_.relu) where_positive(y_data_, dy_data_, dz_data_, padded_count(y_.md));
  }

 private:
  const nn::Add op_;
  const nn::Node& node_;
  Tensor a_, b_, y_, dy_, dz_;
  Elements a_data_, b_data_, y_data_, dy_data_, dz_data_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Add& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<AddKernel>(op, node, low);
}

}  // namespace lockstep::device::cpu
