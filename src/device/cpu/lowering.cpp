#include "device/cpu/lowering.h"

#include <algorithm>

#include "device/cpu/simd.h"

namespace lockstep::device::cpu {

Primitive::Primitive(dnnl::primitive primitive, const memory::desc& scratchpad, Lowering& low)
    : engine_(low.engine), primitive_(std::move(primitive)) {
  ++low.primitives;
  if (scratchpad.get_size() > 0) arg(DNNL_ARG_SCRATCHPAD, scratchpad, low.scratch(scratchpad.get_size()));
}

Primitive& Primitive::arg(int id, const memory::desc& md, int slot) {
  memories_.emplace_back(md, engine_, nullptr);
  slots_.push_back(slot);
  args_.push_back({id, memories_.back().get()});
  return *this;
}

void Primitive::bind(const std::vector<Slot>& slots) {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i] >= 0) memories_[i].set_data_handle(slots[slots_[i]].address);
}

void Primitive::rebind(int id, const void* address) {
  for (size_t i = 0; i < args_.size(); ++i)
    if (args_[i].arg == id) memories_[i].set_data_handle(const_cast<void*>(address));
}

void Primitive::run(dnnl::stream& stream) {
  dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(args_.size()), args_.data());
  if (status != dnnl_success)
    throw std::runtime_error("oneDNN could not run a primitive, status " + std::to_string(status));
}

namespace {

class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(const Tensor& from, const Tensor& to, Lowering& low) {
    dnnl::reorder::primitive_desc pd(low.engine, from.md, low.engine, to.md, attributes());
    reorder_ = Primitive::make<dnnl::reorder>(pd, low);
    reorder_.arg(DNNL_ARG_FROM, from).arg(DNNL_ARG_TO, to);
    ++low.activation_reorders;
  }
  void bind(const std::vector<Slot>& slots) override { reorder_.bind(slots); }
  void forward(const Pass& pass) override { reorder_.run(pass.stream); }
  void backward(const Pass& pass) override { reorder_.run(pass.stream); }

 private:
  Primitive reorder_;
};

// to = a + b over whole padded tensors of one layout.
class SumKernel final : public Kernel {
 public:
  SumKernel(const Tensor& a, const Tensor& b, const Tensor& to)
      : a_slot_(a.slot),
        b_slot_(b.slot),
        to_slot_(to.slot),
        count_(static_cast<int64_t>(a.md.get_size() / 4)) {}
  void bind(const std::vector<Slot>& slots) override {
    a_ = static_cast<float*>(slots[a_slot_].address);
    b_ = static_cast<float*>(slots[b_slot_].address);
    to_ = static_cast<float*>(slots[to_slot_].address);
  }
  void backward(const Pass&) override {
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count_; ++i) to_[i] = a_[i] + b_[i];
  }

 private:
  int a_slot_, b_slot_, to_slot_;
  int64_t count_;
  float *a_ = nullptr, *b_ = nullptr, *to_ = nullptr;
};

}  // namespace

Lowering::Lowering(const nn::Graph& g, CpuStore& s, Mode m)
    : graph(g),
      store(s),
      engine(s.engine()),
      training(m == Mode::train),
      values_(g.values.size()),
      gradients_(g.values.size()) {}

memory::desc Lowering::canonical(const Shape& shape) const {
  using tag = memory::format_tag;
  if (shape.rank() != 4)
    return {dims_of(shape), memory::data_type::f32, shape.rank() == 1 ? tag::a : tag::ab};
  return {dims_of(shape), memory::data_type::f32, channel_block() == 16 ? tag::nChw16c : tag::nChw8c};
}

void Lowering::touch(int slot) {
  Slot& s = slots[slot];
  if (s.first < 0) s.first = now_;
  s.first = std::min(s.first, now_);
  s.last = std::max(s.last, now_);
}

Tensor Lowering::read(nn::ValueId v) {
  touch(values_[v].slot);
  input_read = input_read || is_input(v);
  return values_[v];
}

Tensor Lowering::make(nn::ValueId v, const memory::desc& md) {
  values_[v] = {md, scratch(md.get_size())};
  return values_[v];
}

int Lowering::scratch(size_t bytes) {
  slots.push_back({bytes});
  touch(static_cast<int>(slots.size()) - 1);
  return static_cast<int>(slots.size()) - 1;
}

int Lowering::fixed(void* address, size_t bytes) {
  slots.push_back({bytes, address});
  return static_cast<int>(slots.size()) - 1;
}

void Lowering::prepend(std::unique_ptr<Kernel> kernel) {
  sequence->push_back(kernel.get());
  extra_kernels.push_back(std::move(kernel));
}

// Flattening is a change of name only in the plain layout: [N, C * H * W] is [N, C, H, W] there.
static memory::desc as_4d(const memory::desc& flat, const memory::desc& other) {
  if (dims_of(flat).size() == dims_of(other).size()) return flat;
  return {dims_of(other), memory::data_type::f32, memory::format_tag::nchw};
}

Tensor Lowering::convert(const Tensor& t, const memory::desc& md) {
  use(t);
  const bool flattens = dims_of(t.md).size() > dims_of(md).size(),
             unflattens = dims_of(t.md).size() < dims_of(md).size();
  const Tensor from{unflattens ? as_4d(t.md, md) : t.md, t.slot};
  const memory::desc to_md = flattens ? as_4d(md, t.md) : md;
  if (from.md == to_md) return {md, t.slot};
  const Tensor to{to_md, scratch(to_md.get_size())};
  prepend(std::make_unique<ReorderKernel>(from, to, *this));
  return {md, to.slot};
}

bool Lowering::wants_gradient(nn::ValueId v) const { return training && !is_input(v); }

std::vector<Tensor> Lowering::gradients(nn::ValueId v) {
  for (const Tensor& t : gradients_[v]) {
    touch(t.slot);
    --slots[t.slot].pending_readers;
  }
  return gradients_[v];
}

Tensor Lowering::gradient(nn::ValueId v, const memory::desc& md) {
  std::vector<Tensor> parts = gradients(v);
  for (Tensor& t : parts) t = convert(t, md);
  Tensor total = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) total = sum(total, parts[i]);
  return total;
}

Tensor Lowering::sum(const Tensor& a, const Tensor& b) {
  Tensor to = exclusive(a) ? a : Tensor{a.md, scratch(a.md.get_size())};
  prepend(std::make_unique<SumKernel>(a, b, to));
  return to;
}

Tensor Lowering::make_gradient(nn::ValueId v, const memory::desc& md) {
  Tensor t{md, scratch(md.get_size())};
  give_gradient(v, t);
  return t;
}

void Lowering::give_gradient(nn::ValueId v, const Tensor& t) {
  if (!wants_gradient(v)) return;
  touch(t.slot);
  ++slots[t.slot].pending_readers;
  gradients_[v].push_back(t);
}

int64_t channel_block() {
  static const int64_t block = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core ? 16 : 8;
  return block;
}

}  // namespace lockstep::device::cpu
