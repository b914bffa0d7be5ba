// From a graph to kernels: layouts, lifetimes and gradients are decided here, once, before the first step.
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/onednn.h"
#include "device/cpu/store.h"
#include "device/program.h"
#include "nn/memory_plan.h"

namespace lockstep::device::cpu {

/// A tensor in the program's memory: its layout, and which slot holds it.
struct Tensor {
  memory::desc md;
  int slot = -1;
};

/// A piece of memory: in the arena, with the time during which it is alive, or somewhere fixed.
struct Slot {
  size_t bytes = 0;
  void* fixed = nullptr;
  int first = -1, last = -1;
  int pending_readers = 0;  ///< gradients only: consumers that have not run yet
  void* address = nullptr;
};

/// What one pass carries to its kernels.
struct Pass {
  dnnl::stream& stream;
  const nn::Batch& batch;
  PassKey key;
  SumOverDevices* sum = nullptr;
};

class Lowering;

/// One node on the CPU, both directions.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Declares what backward reads and writes; called in reverse order of the nodes, in training only.
  virtual void lower_backward(Lowering&) {}
  /// Addresses are known (again).
  virtual void bind(const std::vector<Slot>& slots) = 0;
  virtual void forward(const Pass&) {}
  virtual void backward(const Pass&) {}
  /// On a device without samples: what spans the devices alone.
  virtual void forward_empty(const Pass&) {}
  virtual void backward_empty(const Pass&) {}
};

/// A oneDNN primitive with its arguments prepared, so that running it builds nothing.
class Primitive {
 public:
  Primitive() = default;
  /// `scratch` is asked for at the lowering's present time.
  template <class P, class Description>
  static Primitive make(const Description& pd, Lowering& low) {
    return Primitive(P(pd), pd.scratchpad_desc(), low);
  }
  Primitive& arg(int id, const memory::desc& md, int slot);
  Primitive& arg(int id, const Tensor& t) { return arg(id, t.md, t.slot); }
  void bind(const std::vector<Slot>& slots);
  /// For an argument whose address changes with the batch.
  void rebind(int id, const void* address);
  void run(dnnl::stream& stream);
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  Primitive(dnnl::primitive primitive, const memory::desc& scratchpad, Lowering& low);
  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::vector<memory> memories_;
  std::vector<int> slots_;
  std::vector<dnnl_exec_arg_t> args_;
};

class Lowering {
 public:
  /// `given_half`: see nn::storage_precision.
  Lowering(const nn::Graph& graph, CpuStore& store, Mode mode,
           const std::vector<nn::ValueId>& given_half = {});

  const nn::Graph& graph;
  CpuStore& store;
  const dnnl::engine engine;
  const bool training;

  /// The layout of activations: [N, C, H, W] in blocks of 16 (or 8) channels, everything else plain.
  memory::desc canonical(const Shape& shape, memory::data_type type = memory::data_type::f32) const;
  /// That of a value, in the type in which it and its gradient are stored (nn::storage_precision).
  memory::desc canonical(nn::ValueId v) const { return canonical(graph.shape(v), type(v)); }
  memory::data_type type(nn::ValueId v) const { return types_[v]; }
  /// The type in which convolutions and matrix products run on half operands: theirs, or float where the
  /// processor has no fast instructions for it.
  memory::data_type product_type() const { return store.product_type(); }
  /// The type in which the library's other kernels handle the value.
  memory::data_type kernel_type(nn::ValueId v) const;

  /// The forward value, read at the present time.
  Tensor read(nn::ValueId v);
  /// In another type, its layout kept.
  Tensor read_as(nn::ValueId v, memory::data_type type);
  /// As an operand of an operator that computes in half.
  Tensor read_operand(nn::ValueId v);
  /// Its layout, for a kernel that may take the values from elsewhere.
  const Tensor& peek(nn::ValueId v) const { return values_[v]; }
  bool is_input(nn::ValueId v) const {
    return std::holds_alternative<nn::Input>(graph.nodes[graph.values[v].producer].op);
  }
  bool input_read = false;  ///< somebody reads the input value itself, not the batch in place
  /// Memory in which a kernel leaves the value. Where `md` is not of the value's own type, a cast follows the
  /// kernel; so it does in make_gradient() and give_gradient().
  Tensor make(nn::ValueId v, const memory::desc& md);
  /// The same memory under another name and shape (flatten, dropout in evaluation).
  void alias(nn::ValueId v, const Tensor& t) { values_[v] = t; }
  /// Marks the tensor as in use now.
  void use(const Tensor& t) { touch(t.slot); }
  int scratch(size_t bytes);               ///< alive now; longer if used again
  int fixed(void* address, size_t bytes);  ///< parameters, gradients
  /// `t` in layout and type `md`: through a reorder, which is counted, where the layouts differ, through a
  /// cast where types do.
  Tensor convert(const Tensor& t, const memory::desc& md);

  bool wants_gradient(nn::ValueId v) const;
  /// The gradients that the readers of `v` left, one or more, all to be added up.
  std::vector<Tensor> gradients(nn::ValueId v);
  /// The one gradient of `v` in layout `md`, summed and converted as needed.
  Tensor gradient(nn::ValueId v, const memory::desc& md);
  /// The gradient of an operator's output that computes in half: rounded to half, then as `md` says.
  Tensor operand_gradient(nn::ValueId v, const memory::desc& md);
  /// a + b of one layout, into `a` where nobody else will read it.
  Tensor sum(const Tensor& a, const Tensor& b);
  /// A new gradient of `v`; or one that shares memory with another (`t`).
  Tensor make_gradient(nn::ValueId v, const memory::desc& md);
  void give_gradient(nn::ValueId v, const Tensor& t);
  /// Whether nobody else will read this gradient, so that its memory may be overwritten.
  bool exclusive(const Tensor& t) const { return slots[t.slot].pending_readers == 0 && !slots[t.slot].fixed; }

  /// A kernel that runs before the present node's, in the present direction.
  void prepend(std::unique_ptr<Kernel> kernel);
  /// The present node's kernel, behind what was prepended and in front of what must follow it.
  void place(Kernel* kernel);

  void set_time(int time) { now_ = time; }

  std::vector<Slot> slots;
  std::vector<std::unique_ptr<Kernel>> extra_kernels;
  std::vector<Kernel*>* sequence = nullptr;  ///< where prepend() and place() put kernels
  int64_t activation_reorders = 0;
  int64_t primitives = 0;

 private:
  void touch(int slot);
  void append_cast(const Tensor& from, const Tensor& to);
  int now_ = 0;
  std::vector<memory::data_type> types_;
  std::vector<Kernel*> following_;
  std::vector<Tensor> values_;
  std::vector<std::vector<Tensor>> gradients_;
};

// One function an operator, each in the file of its name.
std::unique_ptr<Kernel> lower(const nn::Conv2d&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Linear&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::BatchNorm&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Relu&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Gelu&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::MaxPool&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::AvgPool&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::GlobalAvgPool&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Add&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Concat&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Flatten&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Dropout&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::SoftmaxCrossEntropy&, const nn::Node&, Lowering&);
std::unique_ptr<Kernel> lower(const nn::Input&, const nn::Node&, Lowering&);

/// The layout that weight gradients come in, so that parameters and moments can share it.
memory::desc parameter_layout(const nn::Graph&, const nn::Node&, const nn::Conv2d&, const dnnl::engine&);
memory::desc parameter_layout(const nn::Graph&, const nn::Node&, const nn::Linear&, const dnnl::engine&);

}  // namespace lockstep::device::cpu
