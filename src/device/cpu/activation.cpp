#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

class ReluKernel final : public Kernel {
 public:
  ReluKernel(const nn::Node& node, Lowering& low)
      : node_(node), x_(low.read_as(node.inputs[0], low.type(node.output))) {
    y_ = low.make(node.output, x_.md);
  }
  void lower_backward(Lowering& low) override {
    dy_ = low.gradient(node_.output, y_.md);
    low.use(y_);
    dx_ = gradient_in_place(low, node_.inputs[0], dy_);
  }
  void bind(const std::vector<Slot>& slots) override {
    x_data_ = elements(slots, x_), y_data_ = elements(slots, y_);
    dy_data_ = elements(slots, dy_), dx_data_ = elements(slots, dx_);
  }
  void forward(const Pass&) override { relu(x_data_, y_data_, padded_count(x_.md)); }
  void backward(const Pass&) override {
    if (dx_data_) where_positive(y_data_, dy_data_, dx_data_, padded_count(x_.md));
  }

 private:
  const nn::Node& node_;
  Tensor x_, y_, dy_, dx_;
  Elements x_data_, y_data_, dy_data_, dx_data_;
};

class GeluKernel final : public Kernel {
 public:
  GeluKernel(const nn::Node& node, Lowering& low) : node_(node), x_(low.read(node.inputs[0])) {
    kept_ = x_;
    x_ = low.convert(x_, with_type(x_.md, low.kernel_type(node.output)));
    pd_ = gelu_forward(low.engine, x_.md);
    forward_ = Primitive::make<dnnl::eltwise_forward>(pd_, low);
    forward_.arg(DNNL_ARG_SRC, x_).arg(DNNL_ARG_DST, low.make(node.output, x_.md));
  }
  void lower_backward(Lowering& low) override {
    const Tensor dy =
        low.convert(low.gradient(node_.output, with_type(x_.md, low.type(node_.output))), x_.md);
    x_ = low.convert(kept_, x_.md);
    if (!low.wants_gradient(node_.inputs[0])) return;
    auto pd = gelu_backward(low.engine, x_.md, pd_);
    backward_ = Primitive::make<dnnl::eltwise_backward>(pd, low);
    backward_.arg(DNNL_ARG_SRC, x_)
        .arg(DNNL_ARG_DIFF_DST, dy)
        .arg(DNNL_ARG_DIFF_SRC, gradient_in_place(low, node_.inputs[0], dy));
  }
  void bind(const std::vector<Slot>& slots) override {
    forward_.bind(slots);
    backward_.bind(slots);
  }
  void forward(const Pass& pass) override { forward_.run(pass.stream); }
  void backward(const Pass& pass) override {
    if (backward_) backward_.run(pass.stream);
  }

 private:
  const nn::Node& node_;
  Tensor kept_, x_;  ///< the input as it is stored, and in the kernel's type
  dnnl::eltwise_forward::primitive_desc pd_;
  Primitive forward_, backward_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Relu&, const nn::Node& node, Lowering& low) {
  return std::make_unique<ReluKernel>(node, low);
}
std::unique_ptr<Kernel> lower(const nn::Gelu&, const nn::Node& node, Lowering& low) {
  return std::make_unique<GeluKernel>(node, low);
}

}  // namespace lockstep::device::cpu
