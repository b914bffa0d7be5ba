#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

class PoolKernel final : public Kernel {
 public:
  PoolKernel(dnnl::algorithm kind, const Dims& kernel, const ConvolutionShape& shape, const nn::Node& node,
             Lowering& low)
      : kind_(kind), kernel_(kernel), shape_(shape), node_(node) {
    x_md_ = low.canonical(low.graph.shape(node.inputs[0]), low.kernel_type(node.output));
    y_md_ = low.canonical(low.graph.shape(node.output), low.kernel_type(node.output));
    const Tensor x = low.convert(low.read(node.inputs[0]), x_md_);
    const bool keeps_maximum = low.training && kind == dnnl::algorithm::pooling_max;
    pd_ = pool_forward(low.engine,
                       keeps_maximum ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
                       kind, x.md, y_md_, kernel_, shape_);
    if (!pd_) throw std::runtime_error("oneDNN has no pooling for '" + node.name + "'");
    forward_ = Primitive::make<Forward>(pd_, low);
    forward_.arg(DNNL_ARG_SRC, x).arg(DNNL_ARG_DST, low.make(node.output, y_md_));
    if (keeps_maximum) {
      workspace_ = {pd_.workspace_desc(), low.scratch(pd_.workspace_desc().get_size())};
      forward_.arg(DNNL_ARG_WORKSPACE, workspace_);
    }
  }

  void lower_backward(Lowering& low) override {
    const Tensor dy = low.convert(low.gradient(node_.output, low.canonical(node_.output)), y_md_);
    if (!low.wants_gradient(node_.inputs[0])) return;
    auto pd = pool_backward(low.engine, kind_, x_md_, y_md_, kernel_, shape_, pd_);
    if (!pd) throw std::runtime_error("oneDNN has no pooling gradient for '" + node_.name + "'");
    backward_ = Primitive::make<Backward>(pd, low);
    backward_.arg(DNNL_ARG_DIFF_DST, dy).arg(DNNL_ARG_DIFF_SRC, low.make_gradient(node_.inputs[0], x_md_));
    if (workspace_.slot >= 0) {
      low.use(workspace_);
      backward_.arg(DNNL_ARG_WORKSPACE, workspace_);
    }
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
#if DNNL_VERSION_MAJOR >= 3
  using Forward = dnnl::pooling_forward;
  using Backward = dnnl::pooling_backward;
#else
  using Forward = dnnl::pooling_v2_forward;
  using Backward = dnnl::pooling_v2_backward;
#endif
  const dnnl::algorithm kind_;
  const Dims kernel_;
  const ConvolutionShape shape_;
  const nn::Node& node_;
  memory::desc x_md_, y_md_;
  Forward::primitive_desc pd_;
  Tensor workspace_;
  Primitive forward_, backward_;
};

template <class Pool>
ConvolutionShape window(const Pool& op) {
  return {{op.stride[0], op.stride[1]}, {0, 0}, {op.padding[0], op.padding[1]}};
}

}  // namespace

std::unique_ptr<Kernel> lower(const nn::MaxPool& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<PoolKernel>(dnnl::algorithm::pooling_max, Dims{op.kernel[0], op.kernel[1]},
                                      window(op), node, low);
}

std::unique_ptr<Kernel> lower(const nn::AvgPool& op, const nn::Node& node, Lowering& low) {
  const auto kind = op.count_include_pad ? dnnl::algorithm::pooling_avg_include_padding
                                         : dnnl::algorithm::pooling_avg_exclude_padding;
  return std::make_unique<PoolKernel>(kind, Dims{op.kernel[0], op.kernel[1]}, window(op), node, low);
}

std::unique_ptr<Kernel> lower(const nn::GlobalAvgPool&, const nn::Node& node, Lowering& low) {
  const Shape& x = low.graph.shape(node.inputs[0]);
  return std::make_unique<PoolKernel>(dnnl::algorithm::pooling_avg_exclude_padding, Dims{x[2], x[3]},
                                      ConvolutionShape{{1, 1}, {0, 0}, {0, 0}}, node, low);
}

}  // namespace lockstep::device::cpu
