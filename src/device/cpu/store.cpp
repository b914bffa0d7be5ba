#include "device/cpu/store.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "device/cpu/elementwise.h"
#include "nn/gradient_order.h"

namespace lockstep::device::cpu {

using tag = memory::format_tag;

static memory::desc plain(const Shape& shape) {
  constexpr tag tags[] = {tag::undef, tag::a, tag::ab, tag::abc, tag::abcd, tag::abcde};
  return {dims_of(shape), memory::data_type::f32, tags[shape.rank()]};
}

CpuStore::CpuStore(const nn::Graph& g, const dnnl::engine& engine, nn::Precision precision, bool native_bf16)
    : precision_(precision),
      product_type_(precision == nn::Precision::bf16 && native_bf16 ? memory::data_type::bf16
                                                                    : memory::data_type::f32),
      engine_(engine),
      stream_(engine),
      parameters_(g.parameters),
      slot_of_(g.parameters.size()) {
  layouts_.resize(parameters_.size());
  for (size_t p = 0; p < parameters_.size(); ++p) layouts_[p] = plain(parameters_[p].shape);
  for (const nn::Node& node : g.nodes) {
    if (auto* conv = std::get_if<nn::Conv2d>(&node.op))
      layouts_[node.parameters[0]] = parameter_layout(g, node, *conv, engine);
    if (auto* linear = std::get_if<nn::Linear>(&node.op))
      layouts_[node.parameters[0]] = parameter_layout(g, node, *linear, engine);
  }

  constexpr int64_t kAlign = 16;  // floats: one cache line
  int64_t at = 0;
  parameter_of_ = nn::gradient_order(g);
  for (size_t i = 0; i < parameter_of_.size(); ++i) {
    nn::ParameterId p = parameter_of_[i];
    slot_of_[p] = i;
    auto floats = static_cast<int64_t>(layouts_[p].get_size() / sizeof(float));
    int64_t end = (at + floats + kAlign - 1) / kAlign * kAlign;
    slots_.push_back({parameters_[p].name,
                      parameters_[p].shape,
                      {at, end},
                      parameters_[p].norm_or_bias,
                      layout_text(layouts_[p])});
    at = end;
  }
  values_ = HugeBuffer(at * sizeof(float));
  gradients_ = HugeBuffer(at * sizeof(float));

  int64_t buffer_at = 0;
  for (const nn::Buffer& b : g.buffers) {
    int64_t end = buffer_at + (b.shape.count() + kAlign - 1) / kAlign * kAlign;
    buffer_slots_.push_back({b.name, b.shape, {buffer_at, end}});
    buffer_fill_.push_back(b.fill);
    buffer_at = end;
  }
  buffer_momentum_.resize(g.buffers.size());
  for (const nn::Node& node : g.nodes)
    if (auto* bn = std::get_if<nn::BatchNorm>(&node.op))
      for (nn::BufferId b : node.buffers) buffer_momentum_[b] = static_cast<float>(bn->momentum);
  buffers_ = HugeBuffer(buffer_at * sizeof(float));
  statistics_ = HugeBuffer((kMetrics + buffer_at) * sizeof(float));
  initialize(0);
}

memory::data_type CpuStore::half_type() const {
  constexpr memory::data_type types[] = {memory::data_type::f32, memory::data_type::bf16,
                                         memory::data_type::f16};
  return types[static_cast<int>(precision_)];
}

ShardMetrics CpuStore::metrics(std::span<const float> s) const {
  return {s[0], s[1], s[2], s[3], s[4], s[5]};
}

// A reorder between the logical layout and the device's; rare and cold, so nothing is kept.
static void reorder(const dnnl::engine& engine, const memory::desc& from_md, const float* from,
                    const memory::desc& to_md, float* to) {
  memory source(from_md, engine, const_cast<float*>(from)), target(to_md, engine, to);
  dnnl::stream stream(engine);
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

// The layout's dims may split groups off, [g, O/g, I/g, h, w]: the logical elements are the same, in the same
// order.
static memory::desc logical_layout(const memory::desc& layout) {
  Dims dims = dims_of(layout);
  return plain(Shape(std::span<const int64_t>(dims.data(), dims.size())));
}

void CpuStore::unpack(const ParameterSlot& slot, std::span<const float> flat,
                      std::span<float> logical) const {
  const memory::desc& md = layouts_[parameter_of_[&slot - slots_.data()]];
  reorder(engine_, md, flat.data() + slot.range.begin, logical_layout(md), logical.data());
}

void CpuStore::pack(const ParameterSlot& slot, std::span<const float> logical, std::span<float> flat) const {
  const memory::desc& md = layouts_[parameter_of_[&slot - slots_.data()]];
  reorder(engine_, logical_layout(md), logical.data(), md, flat.data() + slot.range.begin);
}

void CpuStore::initialize(uint64_t seed) {
  std::vector<float> logical;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const nn::Init& init = parameters_[p].init;
    logical.assign(parameters_[p].shape.count(), init.kind == nn::Init::ones ? 1.0f : 0.0f);
    if (init.kind == nn::Init::uniform || init.kind == nn::Init::normal) {
      RandomStream random({.seed = seed, .sample = p, .purpose = Purpose::init});
      for (float& x : logical) {
        if (init.kind == nn::Init::uniform) {
          x = static_cast<float>(init.scale * (2.0 * random.next_uniform() - 1.0));
        } else {  // Box-Muller, one of the pair
          double u = 1.0 - random.next_uniform(), v = random.next_uniform();
          x = static_cast<float>(init.scale * std::sqrt(-2.0 * std::log(u)) *
                                 std::cos(6.283185307179586 * v));
        }
      }
    }
    pack(slots_[slot_of_[p]], logical, values());
  }
  for (size_t b = 0; b < buffer_slots_.size(); ++b)
    std::fill_n(buffer(static_cast<nn::BufferId>(b)), buffer_slots_[b].shape.count(), buffer_fill_[b]);
}

void CpuStore::update_running_statistics(std::span<const float> statistics) {
  const float share = metrics(statistics).share;
  if (share <= 0) return;
  for (size_t b = 0; b < buffer_slots_.size(); ++b) {
    const float momentum = buffer_momentum_[b];
    const float* shard_sum = statistics.data() + kMetrics + buffer_slots_[b].range.begin;
    float* running = buffer(static_cast<nn::BufferId>(b));
    for (int64_t c = 0; c < buffer_slots_[b].shape.count(); ++c)
      running[c] = (1.0f - momentum) * running[c] + momentum * (shard_sum[c] / share);
  }
}

void* CpuStore::operand(nn::ParameterId p, const memory::desc& md) {
  if (precision_ == nn::Precision::fp32 && md == layouts_[p]) return value(p);
  for (const auto& c : copies_)
    if (c->parameter == p && c->md == md) return c->data.data();
  auto copy = std::make_unique<Copy>();
  copy->parameter = p;
  copy->md = md;
  copy->data = HugeBuffer(md.get_size());
  copy->paired = PairedWeights::make(layouts_[p], md);
  copy->from = dnnl::memory(layouts_[p], engine_, value(p));
  copy->to = dnnl::memory(md, engine_, copy->data.data());
  copy->reorder = dnnl::reorder(copy->from, copy->to);
  copy->args[0] = {DNNL_ARG_FROM, copy->from.get()};
  copy->args[1] = {DNNL_ARG_TO, copy->to.get()};
  copies_.push_back(std::move(copy));
  refresh({&copies_.back(), 1});
  return copies_.back()->data.data();
}

void CpuStore::copy_by_library(Copy& copy) {
  if (dnnl_primitive_execute(copy.reorder.get(), stream_.get(), 2, copy.args) != dnnl_success)
    throw std::runtime_error("oneDNN could not reorder parameter '" + parameters_[copy.parameter].name + "'");
  if (type_of(copy.md) == memory::data_type::f32)
    round_to(half_type(), copy.data.as<float>().data(), padded_count(copy.md));
}

void CpuStore::refresh(std::span<const std::unique_ptr<Copy>> copies) {
  for (const auto& c : copies)
    if (!c->paired) copy_by_library(*c);
#pragma omp parallel
  for (const auto& c : copies)
    if (c->paired) c->paired->share(value(c->parameter), c->data.data());
}

void CpuStore::refresh_copies() { refresh(copies_); }

size_t CpuStore::copy_bytes() const {
  size_t bytes = 0;
  for (const auto& c : copies_) bytes += c->data.bytes();
  return bytes;
}

void CpuStore::reserve_arena(size_t bytes) {
  if (bytes <= arena_.bytes()) return;
  arena_ = HugeBuffer();
  arena_ = HugeBuffer(bytes);
  ++generation_;
}

}  // namespace lockstep::device::cpu
