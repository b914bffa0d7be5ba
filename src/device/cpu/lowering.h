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
  Lowering(const nn::Graph& graph, CpuStore& store, Mode mode);

  const nn::Graph& graph;
  CpuStore& store;
  const dnnl::engine engine;
  const bool training;

  /// The layout of activations: [N, C, H, W] in blocks of 16 (or 8) channels, everything else plain.
  memory::desc canonical(const Shape& shape) const;

  /// The forward value, read at the present time.
  Tensor read(nn::ValueId v);
  /// Its layout, for a kernel that may take the values from elsewhere.
  const Tensor& peek(nn::ValueId v) const { return values_[v]; }
  bool is_input(nn::ValueId v) const {
    return std::holds_alternative<nn::Input>(graph.nodes[graph.values[v].producer].op);
  }
  bool input_read = false;  ///< somebody reads the input value itself, not the batch in place
  Tensor make(nn::ValueId v, const memory::desc& md);
  /// The same memory under another name and shape (flatten, dropout in evaluation).
  void alias(nn::ValueId v, const Tensor& t) { values_[v] = t; }
  /// Marks the tensor as in use now.
  void use(const Tensor& t) { touch(t.slot); }
  int scratch(size_t bytes);               ///< alive now; longer if used again
  int fixed(void* address, size_t bytes);  ///< parameters, gradients
  /// `t` in layout `md`, through a reorder that is counted.
  Tensor convert(const Tensor& t, const memory::desc& md);

  bool wants_gradient(nn::ValueId v) const;
  /// The gradients that the readers of `v` left, one or more, all to be added up.
  std::vector<Tensor> gradients(nn::ValueId v);
  /// The one gradient of `v` in layout `md`, summed and converted as needed.
  Tensor gradient(nn::ValueId v, const memory::desc& md);
  /// a + b of one layout, into `a` where nobody else will read it.
  Tensor sum(const Tensor& a, const Tensor& b);
  /// A new gradient of `v`; or one that shares memory with another (`t`).
  Tensor make_gradient(nn::ValueId v, const memory::desc& md);
  void give_gradient(nn::ValueId v, const Tensor& t);
  /// Whether nobody else will read this gradient, so that its memory may be overwritten.
  bool exclusive(const Tensor& t) const { return slots[t.slot].pending_readers == 0 && !slots[t.slot].fixed; }

  /// A kernel that runs before the present node's, in the present direction.
  void prepend(std::unique_ptr<Kernel> kernel);

  void set_time(int time) { now_ = time; }

  std::vector<Slot> slots;
  std::vector<std::unique_ptr<Kernel>> extra_kernels;
  std::vector<Kernel*>* sequence = nullptr;  ///< where prepend() puts its kernel
  int64_t activation_reorders = 0;
  int64_t primitives = 0;

 private:
  void touch(int slot);
  int now_ = 0;
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
