// oneDNN behind one header: the differences between 2.6 and 3.x end here. Nothing outside device/cpu includes
// it.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/shape.h"

namespace lockstep::device::cpu {

using dnnl::memory;
using Dims = memory::dims;

/// Whether the library uses these instructions here.
inline bool runs(dnnl::cpu_isa wanted) {
  return (unsigned(dnnl::get_effective_cpu_isa()) & unsigned(wanted)) == unsigned(wanted);
}

inline Dims dims_of(const Shape& s) { return Dims(s.begin(), s.end()); }

#if DNNL_VERSION_MAJOR >= 3
inline Dims dims_of(const memory::desc& md) { return md.get_dims(); }
inline memory::data_type type_of(const memory::desc& md) { return md.get_data_type(); }
/// The same layout of other elements. Throws std::logic_error for a layout that no activation or linear
/// weight has.
inline memory::desc with_type(const memory::desc& md, memory::data_type type) {
  if (md.get_data_type() == type) return md;
  if (md.get_inner_nblks() == 0) return {md.get_dims(), type, md.get_strides()};
  using tag = memory::format_tag;
  const memory::desc blocked(md.get_dims(), type, md.get_inner_blks()[0] == 16 ? tag::nChw16c : tag::nChw8c);
  if (blocked.get_strides() != md.get_strides() || blocked.get_inner_blks() != md.get_inner_blks())
    throw std::logic_error("no other type in the layout " + std::to_string(md.get_inner_nblks()));
  return blocked;
}
inline bool is_plain_or_blocked(const memory::desc& md) {
  return md.get_format_kind() == memory::format_kind::blocked;
}
inline std::string layout_text(const memory::desc& md) {
  std::string s;
  for (auto d : md.get_strides()) s += std::to_string(d) + ",";
  for (size_t i = 0; i < md.get_inner_blks().size(); ++i)
    s += ";" + std::to_string(md.get_inner_idxs()[i]) + "x" + std::to_string(md.get_inner_blks()[i]);
  return s;
}
#else
inline Dims dims_of(const memory::desc& md) { return Dims(md.data.dims, md.data.dims + md.data.ndims); }
inline memory::data_type type_of(const memory::desc& md) { return md.data_type(); }
inline memory::desc with_type(memory::desc md, memory::data_type type) {
  md.data.data_type = memory::convert_to_c(type);
  return md;
}
inline bool is_plain_or_blocked(const memory::desc& md) {
  return md.data.format_kind == dnnl_blocked && md.data.extra.flags == dnnl_memory_extra_flag_none;
}
inline std::string layout_text(const memory::desc& md) {
  const auto& b = md.data.format_desc.blocking;
  std::string s;
  for (int i = 0; i < md.data.ndims; ++i) s += std::to_string(b.strides[i]) + ",";
  for (int i = 0; i < b.inner_nblks; ++i)
    s += ";" + std::to_string(b.inner_idxs[i]) + "x" + std::to_string(b.inner_blks[i]);
  return s;
}
#endif

/// Scratch memory comes from our arena, never from the library.
inline dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// The descriptors of one operator, in the call shape of 3.x. Each may be empty when no implementation exists.
struct ConvolutionShape {
  Dims strides, dilates, padding;  ///< dilates as oneDNN counts: 0 is dense
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_auto;
};

#if DNNL_VERSION_MAJOR >= 3
template <class Primitive, class... Args>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, Args&&... args) {
  return typename Primitive::primitive_desc(engine, std::forward<Args>(args)..., true);
}
inline auto conv_forward(const dnnl::engine& e, const memory::desc& src, const memory::desc& weights,
                         const memory::desc& bias, const memory::desc& dst, const ConvolutionShape& c) {
  return describe<dnnl::convolution_forward>(e, dnnl::prop_kind::forward_training, c.algorithm, src, weights,
                                             bias, dst, c.strides, c.dilates, c.padding, c.padding,
                                             attributes());
}
inline auto conv_backward_data(const dnnl::engine& e, const memory::desc& diff_src,
                               const memory::desc& weights, const memory::desc& diff_dst,
                               const ConvolutionShape& c,
                               const dnnl::convolution_forward::primitive_desc& hint) {
  return describe<dnnl::convolution_backward_data>(e, c.algorithm, diff_src, weights, diff_dst, c.strides,
                                                   c.dilates, c.padding, c.padding, hint, attributes());
}
inline auto conv_backward_weights(const dnnl::engine& e, const memory::desc& src,
                                  const memory::desc& diff_weights, const memory::desc& diff_bias,
                                  const memory::desc& diff_dst, const ConvolutionShape& c,
                                  const dnnl::convolution_forward::primitive_desc& hint) {
  return describe<dnnl::convolution_backward_weights>(e, c.algorithm, src, diff_weights, diff_bias, diff_dst,
                                                      c.strides, c.dilates, c.padding, c.padding, hint,
                                                      attributes());
}
inline auto matrix_product(const dnnl::engine& e, const memory::desc& a, const memory::desc& b,
                           const memory::desc& bias, const memory::desc& c) {
  return describe<dnnl::matmul>(e, a, b, bias, c, attributes());
}
inline auto pool_forward(const dnnl::engine& e, dnnl::prop_kind prop, dnnl::algorithm kind,
                         const memory::desc& src, const memory::desc& dst, const Dims& kernel,
                         const ConvolutionShape& c) {
  return describe<dnnl::pooling_forward>(e, prop, kind, src, dst, c.strides, kernel, c.dilates, c.padding,
                                         c.padding, attributes());
}
inline auto pool_backward(const dnnl::engine& e, dnnl::algorithm kind, const memory::desc& diff_src,
                          const memory::desc& diff_dst, const Dims& kernel, const ConvolutionShape& c,
                          const dnnl::pooling_forward::primitive_desc& hint) {
  return describe<dnnl::pooling_backward>(e, kind, diff_src, diff_dst, c.strides, kernel, c.dilates,
                                          c.padding, c.padding, hint, attributes());
}
inline auto gelu_forward(const dnnl::engine& e, const memory::desc& x) {
  return describe<dnnl::eltwise_forward>(e, dnnl::prop_kind::forward_training,
                                         dnnl::algorithm::eltwise_gelu_erf, x, x, 0.f, 0.f, attributes());
}
inline auto gelu_backward(const dnnl::engine& e, const memory::desc& x,
                          const dnnl::eltwise_forward::primitive_desc& hint) {
  return describe<dnnl::eltwise_backward>(e, dnnl::algorithm::eltwise_gelu_erf, x, x, x, 0.f, 0.f, hint,
                                          attributes());
}
#else
template <class Primitive, class... Hint>
typename Primitive::primitive_desc describe(const typename Primitive::desc& desc, const dnnl::engine& e,
                                            const Hint&... hint) {
  return typename Primitive::primitive_desc(desc, attributes(), e, hint..., true);
}
inline auto conv_forward(const dnnl::engine& e, const memory::desc& src, const memory::desc& weights,
                         const memory::desc& bias, const memory::desc& dst, const ConvolutionShape& c) {
  using P = dnnl::convolution_forward;
  return describe<P>(P::desc(dnnl::prop_kind::forward_training, c.algorithm, src, weights, bias, dst,
                             c.strides, c.dilates, c.padding, c.padding),
                     e);
}
inline auto conv_backward_data(const dnnl::engine& e, const memory::desc& diff_src,
                               const memory::desc& weights, const memory::desc& diff_dst,
                               const ConvolutionShape& c,
                               const dnnl::convolution_forward::primitive_desc& hint) {
  using P = dnnl::convolution_backward_data;
  return describe<P>(
      P::desc(c.algorithm, diff_src, weights, diff_dst, c.strides, c.dilates, c.padding, c.padding), e, hint);
}
inline auto conv_backward_weights(const dnnl::engine& e, const memory::desc& src,
                                  const memory::desc& diff_weights, const memory::desc& diff_bias,
                                  const memory::desc& diff_dst, const ConvolutionShape& c,
                                  const dnnl::convolution_forward::primitive_desc& hint) {
  using P = dnnl::convolution_backward_weights;
  return describe<P>(P::desc(c.algorithm, src, diff_weights, diff_bias, diff_dst, c.strides, c.dilates,
                             c.padding, c.padding),
                     e, hint);
}
inline auto matrix_product(const dnnl::engine& e, const memory::desc& a, const memory::desc& b,
                           const memory::desc& bias, const memory::desc& c) {
  return describe<dnnl::matmul>(dnnl::matmul::desc(a, b, bias, c), e);
}
inline auto pool_forward(const dnnl::engine& e, dnnl::prop_kind prop, dnnl::algorithm kind,
                         const memory::desc& src, const memory::desc& dst, const Dims& kernel,
                         const ConvolutionShape& c) {
  using P = dnnl::pooling_v2_forward;
  return describe<P>(P::desc(prop, kind, src, dst, c.strides, kernel, c.dilates, c.padding, c.padding), e);
}
inline auto pool_backward(const dnnl::engine& e, dnnl::algorithm kind, const memory::desc& diff_src,
                          const memory::desc& diff_dst, const Dims& kernel, const ConvolutionShape& c,
                          const dnnl::pooling_v2_forward::primitive_desc& hint) {
  using P = dnnl::pooling_v2_backward;
  return describe<P>(P::desc(kind, diff_src, diff_dst, c.strides, kernel, c.dilates, c.padding, c.padding), e,
                     hint);
}
inline auto gelu_forward(const dnnl::engine& e, const memory::desc& x) {
  using P = dnnl::eltwise_forward;
  return describe<P>(
      P::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::eltwise_gelu_erf, x, 0.f, 0.f), e);
}
inline auto gelu_backward(const dnnl::engine& e, const memory::desc& x,
                          const dnnl::eltwise_forward::primitive_desc& hint) {
  using P = dnnl::eltwise_backward;
  return describe<P>(P::desc(dnnl::algorithm::eltwise_gelu_erf, x, x, 0.f, 0.f), e, hint);
}
#endif

}  // namespace lockstep::device::cpu
