// Runs the operators of a graph on the CPU with given inputs and a given gradient of the last value: what a
// program does between its loader and its loss, opened up for tests.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/huge_buffer.h"
#include "device/cpu/elementwise.h"
#include "nn/fusion.h"

namespace lockstep::device::cpu {

class OperatorBench {
 public:
  /// `seeds` are the values whose contents the test gives; their producers are not run. The graph is fused
  /// first. In mixed precision the seeds are half, logits aside.
  OperatorBench(nn::Graph graph, std::vector<nn::ValueId> seeds, Mode mode, bool backward,
                nn::Precision precision = nn::Precision::fp32, bool native_bf16 = false)
      : graph_(nn::fuse(std::move(graph))),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        store_(graph_, engine_, precision, native_bf16),
        low_(graph_, store_, mode, seeds) {
    low_.sequence = &forward_;
    low_.set_time(0);
    for (nn::ValueId v : seeds) {
      const Shape& s = graph_.shape(v);
      seeds_[v] =
          low_.make(v, std::holds_alternative<nn::Input>(graph_.nodes[graph_.values[v].producer].op)
                           ? memory::desc(dims_of(s), memory::data_type::f32, memory::format_tag::nchw)
                           : low_.canonical(v));
    }
    std::vector<std::pair<const nn::Node*, Kernel*>> run;
    int time = 1;
    const nn::ValueId last_seed = seeds.back();
    for (const nn::Node& node : graph_.nodes) {
      if (node.output <= last_seed || seeds_.contains(node.output)) continue;
      low_.set_time(time++);
      kernels_.push_back(std::visit([&](const auto& op) { return lower(op, node, low_); }, node.op));
      low_.place(kernels_.back().get());
      run.emplace_back(&node, kernels_.back().get());
    }
    output_ = run.back().first->output;
    if (output_tensor_needed()) y_ = low_.read(output_);
    if (backward) {
      low_.sequence = &backward_;
      if (output_tensor_needed()) {
        dy_ = {y_.md, low_.scratch(y_.md.get_size())};
        low_.give_gradient(output_, dy_);
      }
      for (auto it = run.rbegin(); it != run.rend(); ++it) {
        low_.set_time(time++);
        it->second->lower_backward(low_);
        low_.place(it->second);
      }
      low_.set_time(time);
      for (nn::ValueId v : seeds)
        if (low_.wants_gradient(v)) seed_gradients_[v] = low_.gradient(v, seeds_[v].md);
    }
    for (Slot& s : low_.slots) {
      memory_.emplace_back(s.fixed ? 0 : std::max<size_t>(s.bytes, 64));
      s.address = s.fixed ? s.fixed : memory_.back().data();
    }
    for (auto& k : kernels_) k->bind(low_.slots);
    for (auto& k : low_.extra_kernels) k->bind(low_.slots);
  }

  CpuStore& store() { return store_; }
  int64_t activation_reorders() const { return low_.activation_reorders; }

  void set(nn::ValueId v, const std::vector<float>& logical) { put(seeds_.at(v), logical); }
  void set_output_gradient(const std::vector<float>& logical) { put(dy_, logical); }
  void forward(const nn::Batch& batch, const PassKey& key) {
    Pass pass{stream_, batch, key};
    for (Kernel* k : forward_) k->forward(pass);
  }
  void backward(const nn::Batch& batch, const PassKey& key) {
    Pass pass{stream_, batch, key};
    for (Kernel* k : backward_) k->backward(pass);
  }
  std::vector<float> output() { return get(y_); }
  std::vector<float> gradient(nn::ValueId v) { return get(seed_gradients_.at(v)); }
  /// What the memory holds, padding included.
  std::vector<float> raw_output() {
    const Elements all = elements(low_.slots, y_);
    std::vector<float> out(padded_count(y_.md));
    for (size_t i = 0; i < out.size(); ++i) out[i] = all.get(static_cast<int64_t>(i));
    return out;
  }

 private:
  bool output_tensor_needed() const { return graph_.shape(output_).rank() > 0; }
  static memory::desc plain(const memory::desc& md) {
    using tag = memory::format_tag;
    const Dims d = dims_of(md);
    return {d, memory::data_type::f32, d.size() == 4 ? tag::abcd : tag::ab};
  }
  void reorder(const memory::desc& from_md, void* from, const memory::desc& to_md, void* to) {
    memory a(from_md, engine_, from), b(to_md, engine_, to);
    dnnl::reorder(a, b).execute(stream_, a, b);
    stream_.wait();
  }
  void put(const Tensor& t, std::vector<float> logical) {
    const memory::desc floats = with_type(t.md, memory::data_type::f32);
    HugeBuffer buffer(floats.get_size());
    reorder(plain(t.md), logical.data(), floats, buffer.data());
    cast({buffer.data(), 0}, elements(low_.slots, t), padded_count(t.md));
  }
  std::vector<float> get(const Tensor& t) {
    int64_t count = 1;
    for (int64_t d : dims_of(t.md)) count *= d;
    std::vector<float> out(count);
    const memory::desc floats = with_type(t.md, memory::data_type::f32);
    HugeBuffer buffer(floats.get_size());
    cast(elements(low_.slots, t), {buffer.data(), 0}, padded_count(t.md));
    reorder(floats, buffer.data(), plain(t.md), out.data());
    return out;
  }

  nn::Graph graph_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  CpuStore store_;
  Lowering low_;
  std::map<nn::ValueId, Tensor> seeds_, seed_gradients_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Kernel*> forward_, backward_;
  std::vector<HugeBuffer> memory_;
  nn::ValueId output_ = -1;
  Tensor y_, dy_;
};

}  // namespace lockstep::device::cpu
