#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

class ReluKernel final : public Kernel {
 public:
  ReluKernel(const nn::Node& node, Lowering& low) : node_(node), x_(low.read(node.inputs[0])) {
    y_ = low.make(node.output, x_.md);
  }
  void lower_backward(Lowering& low) override {
    dy_ = low.gradient(node_.output, y_.md);
    low.use(y_);
    dx_ = gradient_in_place(low, node_.inputs[0], dy_);
  }
  void bind(const std::vector<Slot>& slots) override {
    x_data_ = address(slots, x_), y_data_ = address(slots, y_);
    dy_data_ = address(slots, dy_), dx_data_ = address(slots, dx_);
  }
  void forward(const Pass&) override {
    const int64_t count = padded_count(x_.md);
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) y_data_[i] = x_data_[i] < 0 ? 0 : x_data_[i];
  }
  void backward(const Pass&) override {
    if (!dx_data_) return;
    const int64_t count = padded_count(x_.md);
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) dx_data_[i] = y_data_[i] > 0 ? dy_data_[i] : 0;
  }

 private:
  const nn::Node& node_;
  Tensor x_, y_, dy_, dx_;
  float *x_data_ = nullptr, *y_data_ = nullptr, *dy_data_ = nullptr, *dx_data_ = nullptr;
};

class GeluKernel final : public Kernel {
 public:
  GeluKernel(const nn::Node& node, Lowering& low) : node_(node), x_(low.read(node.inputs[0])) {
    pd_ = gelu_forward(low.engine, x_.md);
    forward_ = Primitive::make<dnnl::eltwise_forward>(pd_, low);
    forward_.arg(DNNL_ARG_SRC, x_).arg(DNNL_ARG_DST, low.make(node.output, x_.md));
  }
  void lower_backward(Lowering& low) override {
    const Tensor dy = low.gradient(node_.output, x_.md);
    low.use(x_);
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
  Tensor x_;
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
