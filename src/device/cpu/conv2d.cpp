#include <omp.h>

#include <array>

#include "device/cpu/lowering.h"
#include "device/cpu/weight_gradient.h"

namespace lockstep::device::cpu {

namespace {

constexpr auto f32 = memory::data_type::f32;
constexpr auto any = memory::format_tag::any;

enum class Direction { forward, data, weights };

// Winograd's F(4x4, 3x3) where it can be used and pays. oneDNN 2.6 picks the direct kernel by itself for
// weight gradients of large images, where Winograd takes half the time (64 channels of 56x56: 3.5 against
// 7.5 ms), and Winograd for the other two directions of few channels, whose tiles are transformed for few
// products, where direct is faster (16 to 16 channels of 28x28: 3.6 against 2.6 ms forward). A rule and not a
// measurement at start: all ranks must choose alike.
dnnl::algorithm algorithm(const nn::Conv2d& op, const Shape& in, Direction direction) {
  using Pair = std::array<int64_t, 2>;
  if (op.kernel != Pair{3, 3} || op.stride != Pair{1, 1} || op.dilation != Pair{1, 1} || op.groups != 1)
    return dnnl::algorithm::convolution_auto;
  if (direction != Direction::weights && in[1] <= 16) return dnnl::algorithm::convolution_direct;
  return dnnl::algorithm::convolution_winograd;
}

ConvolutionShape convolution_shape(const nn::Conv2d& op, const Shape& in, Direction direction) {
  return {{op.stride[0], op.stride[1]},
          {op.dilation[0] - 1, op.dilation[1] - 1},
          {op.padding[0], op.padding[1]},
          algorithm(op, in, direction)};
}

// `describe` with the preferred algorithm, else with the library's own choice.
template <class Describe>
auto preferred(ConvolutionShape shape, const Describe& describe) {
  auto pd = describe(shape);
  if (!pd && shape.algorithm != dnnl::algorithm::convolution_auto) {
    shape.algorithm = dnnl::algorithm::convolution_auto;
    pd = describe(shape);
  }
  return pd;
}

Dims weight_dims(const nn::Conv2d& op, const Shape& x) {
  const int64_t k = op.out_channels, c = x[1], g = op.groups;
  if (g > 1) return {g, k / g, c / g, op.kernel[0], op.kernel[1]};
  return {k, c, op.kernel[0], op.kernel[1]};
}

memory::desc bias_layout(const nn::Conv2d& op) {
  return op.bias ? memory::desc({op.out_channels}, f32, memory::format_tag::a) : memory::desc();
}

// Our own weight gradient, where it is of use: the library takes as long or longer (up to 1.7 times) but for
// 3x3 kernels on larger images, whose input it writes anew once for nine taps.
std::optional<WeightGradient> own_weight_gradient(const nn::Conv2d& op, const memory::desc& x,
                                                  const memory::desc& dy, const memory::desc& weights) {
  using tag = memory::format_tag;
  constexpr auto bf16 = memory::data_type::bf16;
  const Dims in = dims_of(x), out = dims_of(dy);
  const bool blocked = x == memory::desc(in, bf16, tag::nChw16c) &&
                       dy == memory::desc(out, bf16, tag::nChw16c) && op.groups == 1 &&
                       weights == memory::desc(dims_of(weights), f32, tag::ABcd16b16a);
  const bool pays =
      op.kernel[0] * op.kernel[1] == 1 || op.stride[0] * op.stride[1] > 1 || out[2] * out[3] <= 64;
  if (!blocked || op.bias || !pays || !WeightGradient::pays()) return {};
  const auto axis = [&](int i) {
    return WeightGradient::Axis{in[2 + i],    out[2 + i],    op.kernel[i],
                                op.stride[i], op.padding[i], op.dilation[i]};
  };
  return WeightGradient{in[0], (in[1] + 15) / 16, (out[1] + 15) / 16, axis(0), axis(1)};
}

bool slow(const std::string& implementation) { return implementation.find("ref") != std::string::npos; }

class Conv2dKernel final : public Kernel {
 public:
  Conv2dKernel(const nn::Conv2d& op, const nn::Node& node, Lowering& low) : op_(op), node_(node) {
    const Shape in = low.graph.shape(node.inputs[0]);
    const memory::data_type type = low.product_type();
    const memory::desc out =
        low.canonical(low.graph.shape(node.output), low.type(node.output) == f32 ? f32 : type);
    const ConvolutionShape shape = convolution_shape(op, in, Direction::forward);
    const memory::desc any_weights(weight_dims(op, in), type, any);

    // Blocked activations throughout; where no fast kernel takes them, the library's choice and a reorder.
    const Tensor x = low.peek(node.inputs[0]);
    const memory::desc x_md = with_type(x.md, type);
    forward_pd_ = preferred(shape, [&](const ConvolutionShape& c) {
      return conv_forward(low.engine, x_md, any_weights, bias_layout(op), out, c);
    });
    if (!forward_pd_ || slow(forward_pd_.impl_info_str())) {
      const memory::desc any_in(dims_of(in), type, any), any_out(dims_of(out), type_of(out), any);
      auto free_choice = preferred(shape, [&](const ConvolutionShape& c) {
        return conv_forward(low.engine, any_in, any_weights, bias_layout(op), any_out, c);
      });
      if (free_choice && (!forward_pd_ || !slow(free_choice.impl_info_str()))) forward_pd_ = free_choice;
    }
    if (!forward_pd_) throw std::runtime_error("oneDNN has no convolution for '" + node.name + "'");

    weight_ = node.parameters[0];
    direct_input_ =
        low.is_input(node.inputs[0]) && forward_pd_.src_desc() == x.md && low.store.half_type() == f32;
    kept_ = direct_input_ ? x : low.read_operand(node.inputs[0]);
    x_ = direct_input_ ? x : low.convert(kept_, forward_pd_.src_desc());
    forward_ = Primitive::make<dnnl::convolution_forward>(forward_pd_, low);
    forward_.arg(DNNL_ARG_SRC, x_).arg(DNNL_ARG_WEIGHTS, weights_in(forward_pd_.weights_desc(), low));
    if (op.bias)
      forward_.arg(DNNL_ARG_BIAS, bias_layout(op), low.fixed(low.store.value(node.parameters[1]), 0));
    if (forward_pd_.dst_desc() == out) {
      forward_.arg(DNNL_ARG_DST, low.make(node.output, out));
    } else {
      Tensor y{forward_pd_.dst_desc(), low.scratch(forward_pd_.dst_desc().get_size())};
      forward_.arg(DNNL_ARG_DST, y);
      Tensor canonical = low.make(node.output, out);
      dnnl::reorder::primitive_desc pd(low.engine, y.md, low.engine, canonical.md, attributes());
      to_canonical_ = Primitive::make<dnnl::reorder>(pd, low);
      to_canonical_.arg(DNNL_ARG_FROM, y).arg(DNNL_ARG_TO, canonical);
      ++low.activation_reorders;
    }
  }

  void lower_backward(Lowering& low) override {
    const Shape in = low.graph.shape(node_.inputs[0]);
    const ConvolutionShape data_shape = convolution_shape(op_, in, Direction::data);
    const memory::desc& layout = low.store.layout(weight_);
    const memory::desc dst = with_type(forward_pd_.dst_desc(), low.product_type());
    Tensor dy = low.operand_gradient(node_.output, dst);
    // Floats made of halves are made again rather than kept: half the memory.
    if (type_of(kept_.md) != type_of(x_.md)) x_ = low.convert(kept_, x_.md);
    if (!direct_input_) low.use(x_);

    own_ = own_weight_gradient(op_, x_.md, dst, layout);
    if (own_) {
      own_x_ = x_.slot, own_dy_ = dy.slot;
      own_scratch_ = low.scratch(WeightGradient::scratch_bytes(omp_get_max_threads()));
      own_dw_ = low.fixed(low.store.gradient(weight_), layout.get_size());
    } else {
      lower_weight_gradient(low, dy);
    }

    if (!low.wants_gradient(node_.inputs[0])) return;
    const memory::desc any_weights(dims_of(layout), low.product_type(), any);
    auto data_pd = preferred(data_shape, [&](const ConvolutionShape& c) {
      return conv_backward_data(low.engine, x_.md, any_weights, dst, c, forward_pd_);
    });
    if (!data_pd) throw std::runtime_error("oneDNN has no data gradient for '" + node_.name + "'");
    backward_data_ = Primitive::make<dnnl::convolution_backward_data>(data_pd, low);
    backward_data_.arg(DNNL_ARG_DIFF_DST, dy)
        .arg(DNNL_ARG_WEIGHTS, weights_in(data_pd.weights_desc(), low))
        .arg(DNNL_ARG_DIFF_SRC, low.make_gradient(node_.inputs[0], x_.md));
  }

  void bind(const std::vector<Slot>& slots) override {
    for (Primitive* p : {&forward_, &to_canonical_, &backward_weights_, &to_store_, &backward_data_})
      p->bind(slots);
    slots_ = &slots;
  }

  void forward(const Pass& pass) override {
    if (direct_input_) forward_.rebind(DNNL_ARG_SRC, pass.batch.images);
    forward_.run(pass.stream);
    if (to_canonical_) to_canonical_.run(pass.stream);
  }

  void backward(const Pass& pass) override {
    if (direct_input_) backward_weights_.rebind(DNNL_ARG_SRC, pass.batch.images);
    if (own_) {
      const auto at = [&](int slot) { return (*slots_)[slot].address; };
      own_->run(static_cast<const uint16_t*>(at(own_x_)), static_cast<const uint16_t*>(at(own_dy_)),
                static_cast<float*>(at(own_dw_)), static_cast<std::byte*>(at(own_scratch_)));
    } else {
      backward_weights_.run(pass.stream);
    }
    if (to_store_) to_store_.run(pass.stream);
    if (backward_data_) backward_data_.run(pass.stream);
  }

 private:
  void lower_weight_gradient(Lowering& low, const Tensor& dy) {
    const ConvolutionShape weights_shape =
        convolution_shape(op_, low.graph.shape(node_.inputs[0]), Direction::weights);
    const memory::desc& layout = low.store.layout(weight_);
    auto weights_pd = preferred(weights_shape, [&](const ConvolutionShape& c) {
      return conv_backward_weights(low.engine, x_.md, layout, bias_layout(op_), dy.md, c, forward_pd_);
    });
    if (!weights_pd || slow(weights_pd.impl_info_str())) {
      const memory::desc any_weights(dims_of(layout), f32, any);
      auto free_choice = preferred(weights_shape, [&](const ConvolutionShape& c) {
        return conv_backward_weights(low.engine, x_.md, any_weights, bias_layout(op_), dy.md, c, forward_pd_);
      });
      if (free_choice && (!weights_pd || !slow(free_choice.impl_info_str()))) weights_pd = free_choice;
    }
    if (!weights_pd) throw std::runtime_error("oneDNN has no weight gradient for '" + node_.name + "'");
    backward_weights_ = Primitive::make<dnnl::convolution_backward_weights>(weights_pd, low);
    backward_weights_.arg(DNNL_ARG_SRC, x_).arg(DNNL_ARG_DIFF_DST, dy);
    const Tensor dw{layout, low.fixed(low.store.gradient(weight_), layout.get_size())};
    if (weights_pd.diff_weights_desc() == layout) {
      backward_weights_.arg(DNNL_ARG_DIFF_WEIGHTS, dw);
    } else {  // another micro-batch of the model may prefer another layout than the store's
      Tensor other{weights_pd.diff_weights_desc(), low.scratch(weights_pd.diff_weights_desc().get_size())};
      backward_weights_.arg(DNNL_ARG_DIFF_WEIGHTS, other);
      dnnl::reorder::primitive_desc pd(low.engine, other.md, low.engine, layout, attributes());
      to_store_ = Primitive::make<dnnl::reorder>(pd, low);
      to_store_.arg(DNNL_ARG_FROM, other).arg(DNNL_ARG_TO, dw);
    }
    if (op_.bias)
      backward_weights_.arg(DNNL_ARG_DIFF_BIAS, bias_layout(op_),
                            low.fixed(low.store.gradient(node_.parameters[1]), 0));
  }

  Tensor weights_in(const memory::desc& md, Lowering& low) {
    return {md, low.fixed(low.store.operand(weight_, md), md.get_size())};
  }

  const nn::Conv2d op_;
  const nn::Node& node_;
  dnnl::convolution_forward::primitive_desc forward_pd_;
  nn::ParameterId weight_ = -1;
  Tensor kept_, x_;            ///< the input as it is kept for backward, and as the library reads it
  bool direct_input_ = false;  ///< reads the batch where the loader put it
  Primitive forward_, to_canonical_, backward_weights_, to_store_, backward_data_;
  std::optional<WeightGradient> own_;  ///< instead of backward_weights_
  int own_x_ = -1, own_dy_ = -1, own_dw_ = -1, own_scratch_ = -1;
  const std::vector<Slot>* slots_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::Conv2d& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<Conv2dKernel>(op, node, low);
}

memory::desc parameter_layout(const nn::Graph& g, const nn::Node& node, const nn::Conv2d& op,
                              const dnnl::engine& engine) {
  const Shape in = g.shape(node.inputs[0]), out = g.shape(node.output);
  const Dims w = weight_dims(op, in);
  const memory::desc any_in(dims_of(in), f32, any), any_out(dims_of(out), f32, any), any_weights(w, f32, any);
  auto forward = preferred(convolution_shape(op, in, Direction::forward), [&](const ConvolutionShape& c) {
    return conv_forward(engine, any_in, any_weights, bias_layout(op), any_out, c);
  });
  if (forward) {
    auto weights = preferred(convolution_shape(op, in, Direction::weights), [&](const ConvolutionShape& c) {
      return conv_backward_weights(engine, forward.src_desc(), any_weights, bias_layout(op),
                                   forward.dst_desc(), c, forward);
    });
    if (weights && is_plain_or_blocked(weights.diff_weights_desc())) return weights.diff_weights_desc();
  }
  return {w, f32, op.groups > 1 ? memory::format_tag::goihw : memory::format_tag::oihw};
}

}  // namespace lockstep::device::cpu
