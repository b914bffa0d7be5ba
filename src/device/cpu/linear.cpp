#include <algorithm>

#include "device/cpu/elementwise.h"
#include "device/cpu/simd.h"

namespace lockstep::device::cpu {

namespace {

using tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;

// Behind a flatten the input still lies as [N, C, H, W] in channel blocks. The weight [out, C * H * W] is
// kept in the same blocks, so that both are plain matrices [N, F] and [out, F] (F with the padding, which is
// zero) and nothing moves. Why matrix products and not oneDNN's inner product: its backward has no fast
// kernel for these layouts in 2.6.
bool flattened(const nn::Graph& g, nn::ValueId v) {
  const nn::Node& producer = g.nodes[g.values[v].producer];
  if (std::holds_alternative<nn::Flatten>(producer.op)) {
    const nn::ValueId x = producer.inputs[0];
    return g.shape(x).rank() == 4 && !std::holds_alternative<nn::Input>(g.nodes[g.values[x].producer].op);
  }
  const bool keeps_layout = std::holds_alternative<nn::Relu>(producer.op) ||
                            std::holds_alternative<nn::Gelu>(producer.op) ||
                            std::holds_alternative<nn::Dropout>(producer.op);
  return keeps_layout && flattened(g, producer.inputs[0]);
}

const Shape& shape_before_flatten(const nn::Graph& g, nn::ValueId v) {
  const nn::Node& producer = g.nodes[g.values[v].producer];
  return std::holds_alternative<nn::Flatten>(producer.op) ? g.shape(producer.inputs[0])
                                                          : shape_before_flatten(g, producer.inputs[0]);
}

class LinearKernel final : public Kernel {
 public:
  LinearKernel(const nn::Linear& op, const nn::Node& node, Lowering& low) : op_(op), node_(node) {
    const memory::data_type type = low.product_type();
    kept_ = low.read_operand(node.inputs[0]);
    x_ = low.convert(kept_, with_type(kept_.md, type));
    const memory::desc& layout = low.store.layout(node.parameters[0]);
    if (flattened(low.graph, node.inputs[0]) == (dims_of(layout).size() == 2))
      throw std::logic_error("linear '" + node.name + "': store and program disagree on the layout");
    samples_ = dims_of(x_.md)[0];
    features_ = padded_count(x_.md) / samples_;
    weight_ = low.fixed(low.store.operand(node.parameters[0], with_type(layout, type)), 0);
    if (op.bias) bias_ = low.fixed(low.store.value(node.parameters[1]), 0);

    y_md_ = low.canonical(low.graph.shape(node.output), low.type(node.output) == f32 ? f32 : type);
    const memory::desc w({features_, op.out_features}, type, tag::ba);
    const memory::desc bias = op.bias ? memory::desc({1, op.out_features}, f32, tag::ab) : memory::desc();
    auto pd = matrix_product(low.engine, x_matrix(), w, bias, y_md_);
    forward_ = Primitive::make<dnnl::matmul>(pd, low);
    forward_.arg(DNNL_ARG_SRC, x_matrix(), x_.slot).arg(DNNL_ARG_WEIGHTS, w, weight_);
    if (op.bias) forward_.arg(DNNL_ARG_BIAS, bias, bias_);
    forward_.arg(DNNL_ARG_DST, low.make(node.output, y_md_));
  }

  void lower_backward(Lowering& low) override {
    const memory::data_type type = low.product_type();
    const memory::desc dy_md = with_type(y_md_, type);
    dy_ = low.operand_gradient(node_.output, dy_md);
    x_ = low.convert(kept_, x_.md);
    const int dw_slot = low.fixed(low.store.gradient(node_.parameters[0]), 0);
    const memory::desc dy_transposed({op_.out_features, samples_}, type, tag::ba);
    const memory::desc dw({op_.out_features, features_}, f32, tag::ab);
    auto weights_pd = matrix_product(low.engine, dy_transposed, x_matrix(), {}, dw);
    backward_weights_ = Primitive::make<dnnl::matmul>(weights_pd, low);
    backward_weights_.arg(DNNL_ARG_SRC, dy_transposed, dy_.slot)
        .arg(DNNL_ARG_WEIGHTS, x_matrix(), x_.slot)
        .arg(DNNL_ARG_DST, dw, dw_slot);
    if (op_.bias) dbias_ = low.store.gradient(node_.parameters[1]);

    if (!low.wants_gradient(node_.inputs[0])) return;
    const memory::desc w = with_type(dw, type);
    auto data_pd = matrix_product(low.engine, dy_md, w, {}, x_matrix());
    backward_data_ = Primitive::make<dnnl::matmul>(data_pd, low);
    backward_data_.arg(DNNL_ARG_SRC, dy_)
        .arg(DNNL_ARG_WEIGHTS, w, weight_)
        .arg(DNNL_ARG_DST, x_matrix(), low.make_gradient(node_.inputs[0], x_.md).slot);
  }

  void bind(const std::vector<Slot>& slots) override {
    for (Primitive* p : {&forward_, &backward_weights_, &backward_data_}) p->bind(slots);
    dy_data_ = elements(slots, dy_);
  }
  void forward(const Pass& pass) override { forward_.run(pass.stream); }
  void backward(const Pass& pass) override {
    backward_weights_.run(pass.stream);
    if (dbias_) {
      std::fill_n(dbias_, op_.out_features, 0.0f);
      for (int64_t n = 0; n < samples_; ++n)
        for (int64_t o = 0; o < op_.out_features; ++o) dbias_[o] += dy_data_.get(n * op_.out_features + o);
    }
    if (backward_data_) backward_data_.run(pass.stream);
  }

 private:
  memory::desc x_matrix() const { return {{samples_, features_}, type_of(x_.md), tag::ab}; }

  const nn::Linear op_;
  const nn::Node& node_;
  Tensor kept_, x_, dy_;
  memory::desc y_md_;
  int64_t samples_ = 0, features_ = 0;
  int weight_ = -1, bias_ = -1;
  Elements dy_data_;
  float* dbias_ = nullptr;
  Primitive forward_, backward_weights_, backward_data_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Linear& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<LinearKernel>(op, node, low);
}

memory::desc parameter_layout(const nn::Graph& g, const nn::Node& node, const nn::Linear& op,
                              const dnnl::engine&) {
  if (!flattened(g, node.inputs[0])) return {{op.out_features, g.shape(node.inputs[0])[1]}, f32, tag::ab};
  const Shape& x = shape_before_flatten(g, node.inputs[0]);
  return {{op.out_features, x[1], x[2], x[3]}, f32, channel_block() == 16 ? tag::nChw16c : tag::nChw8c};
}

}  // namespace lockstep::device::cpu
