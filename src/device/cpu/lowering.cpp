#include "device/cpu/lowering.h"

#include <algorithm>

#include "device/cpu/elementwise.h"
#include "device/cpu/simd.h"
#include "nn/precision.h"

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

class SumKernel final : public Kernel {
 public:
  SumKernel(const Tensor& a, const Tensor& b, const Tensor& to) : a_(a), b_(b), to_(to) {}
  void bind(const std::vector<Slot>& slots) override {
    a_data_ = elements(slots, a_), b_data_ = elements(slots, b_), to_data_ = elements(slots, to_);
  }
  void backward(const Pass&) override { add(a_data_, b_data_, false, to_data_, padded_count(a_.md)); }

 private:
  const Tensor a_, b_, to_;
  Elements a_data_, b_data_, to_data_;
};

// One layout, another type. Without a slot to read, `from` is the batch's images.
class CastKernel final : public Kernel {
 public:
  CastKernel(const Tensor& from, const Tensor& to) : from_(from), to_(to) {}
  void bind(const std::vector<Slot>& slots) override {
    from_data_ = elements(slots, from_), to_data_ = elements(slots, to_);
  }
  void forward(const Pass& pass) override { run(pass); }
  void backward(const Pass& pass) override { run(pass); }

 private:
  void run(const Pass& pass) const {
    Elements from = from_data_;
    if (!from) from.data = reinterpret_cast<std::byte*>(const_cast<float*>(pass.batch.images));
    cast(from, to_data_, padded_count(to_.md));
  }
  const Tensor from_, to_;
  Elements from_data_, to_data_;
};

}  // namespace

Lowering::Lowering(const nn::Graph& g, CpuStore& s, Mode m, const std::vector<nn::ValueId>& given_half)
    : graph(g),
      store(s),
      engine(s.engine()),
      training(m == Mode::train),
      values_(g.values.size()),
      gradients_(g.values.size()) {
  for (nn::Precision p : nn::storage_precision(g, s.precision(), given_half))
    types_.push_back(p == nn::Precision::fp32 ? memory::data_type::f32 : s.half_type());
}

memory::desc Lowering::canonical(const Shape& shape, memory::data_type type) const {
  using tag = memory::format_tag;
  if (shape.rank() != 4) return {dims_of(shape), type, shape.rank() == 1 ? tag::a : tag::ab};
  return {dims_of(shape), type, channel_block() == 16 ? tag::nChw16c : tag::nChw8c};
}

memory::data_type Lowering::kernel_type(nn::ValueId v) const {
  return type(v) == memory::data_type::bf16 && store.product_type() == type(v) ? type(v)
                                                                               : memory::data_type::f32;
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

Tensor Lowering::read_as(nn::ValueId v, memory::data_type type) {
  return convert(read(v), with_type(values_[v].md, type));
}

Tensor Lowering::read_operand(nn::ValueId v) {
  if (!is_input(v) || store.half_type() == memory::data_type::f32) return read_as(v, store.half_type());
  const memory::desc md = with_type(values_[v].md, store.half_type());
  const Tensor to{md, scratch(md.get_size())};
  prepend(std::make_unique<CastKernel>(Tensor{values_[v].md, -1}, to));
  return to;
}

void Lowering::append_cast(const Tensor& from, const Tensor& to) {
  extra_kernels.push_back(std::make_unique<CastKernel>(from, to));
  following_.push_back(extra_kernels.back().get());
}

Tensor Lowering::make(nn::ValueId v, const memory::desc& md) {
  const Tensor t{md, scratch(md.get_size())};
  values_[v] = t;
  if (type_of(md) != type(v)) {
    const memory::desc stored = with_type(md, type(v));
    values_[v] = {stored, scratch(stored.get_size())};
    append_cast(t, values_[v]);
  }
  return t;
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

void Lowering::place(Kernel* kernel) {
  sequence->push_back(kernel);
  sequence->insert(sequence->end(), following_.begin(), following_.end());
  following_.clear();
}

// Flattening is a change of name only in the plain layout: [N, C * H * W] is [N, C, H, W] there.
static memory::desc as_4d(const memory::desc& flat, const memory::desc& other) {
  if (dims_of(flat).size() == dims_of(other).size()) return flat;
  return {dims_of(other), type_of(flat), memory::format_tag::nchw};
}

Tensor Lowering::convert(const Tensor& t, const memory::desc& md) {
  use(t);
  const bool flattens = dims_of(t.md).size() > dims_of(md).size(),
             unflattens = dims_of(t.md).size() < dims_of(md).size();
  const Tensor from{unflattens ? as_4d(t.md, md) : t.md, t.slot};
  const memory::desc to_md = flattens ? as_4d(md, t.md) : md;
  if (from.md == to_md) return {md, t.slot};
  if (type_of(from.md) == type_of(to_md)) {
    if (type_of(to_md) == memory::data_type::f16) {  // which the library may not reorder
      const Tensor floats = convert(from, with_type(from.md, memory::data_type::f32));
      return {md, convert(convert(floats, with_type(to_md, memory::data_type::f32)), to_md).slot};
    }
    const Tensor to{to_md, scratch(to_md.get_size())};
    prepend(std::make_unique<ReorderKernel>(from, to, *this));
    return {md, to.slot};
  }
  const memory::desc recast = with_type(from.md, type_of(to_md));
  const Tensor to{recast, scratch(recast.get_size())};
  prepend(std::make_unique<CastKernel>(from, to));
  return {md, convert(to, to_md).slot};
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

Tensor Lowering::operand_gradient(nn::ValueId v, const memory::desc& md) {
  const Tensor own = gradient(v, with_type(md, type(v)));
  return convert(convert(own, with_type(md, store.half_type())), md);
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
  Tensor given = t;
  if (type_of(t.md) != type(v)) {
    given.md = with_type(t.md, type(v));
    given.slot = scratch(given.md.get_size());
    append_cast(t, given);
  }
  touch(given.slot);
  ++slots[given.slot].pending_readers;
  gradients_[v].push_back(given);
}

int64_t channel_block() {
  static const int64_t block = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core ? 16 : 8;
  return block;
}

}  // namespace lockstep::device::cpu
