#include "nn/fusion.h"

#include <algorithm>
#include <array>

namespace lockstep::nn {

namespace {

struct Fuser {
  Graph& g;
  std::vector<int> readers, position;

  explicit Fuser(Graph& graph) : g(graph), readers(g.values.size()) {
    for (const Node& n : g.nodes)
      for (ValueId v : n.inputs) ++readers[v];
  }

  // The node that alone makes `v` for one reader, if it is a T.
  template <class T>
  Node* sole_producer(ValueId v) {
    Node& n = g.nodes[g.values[v].producer];
    return readers[v] == 1 && std::holds_alternative<T>(n.op) ? &n : nullptr;
  }

  // `into` takes over what `node` computes; `node` becomes a husk that is dropped at the end.
  void absorb(Node& node, Node& into_op_of) {
    node.op = into_op_of.op;
    node.name = into_op_of.name;
    node.parameters = std::move(into_op_of.parameters);
    node.buffers = std::move(into_op_of.buffers);
    into_op_of.output = -1;
  }

  void add(Node& node) {
    for (int side : {0, 1}) {
      Node* bn = sole_producer<BatchNorm>(node.inputs[side]);
      if (!bn || std::get<BatchNorm>(bn->op).add || std::get<BatchNorm>(bn->op).relu) continue;
      ValueId residual = node.inputs[1 - side];
      node.inputs = {bn->inputs[0], residual};
      absorb(node, *bn);
      std::get<BatchNorm>(node.op).add = true;
      return;
    }
  }

  void relu(Node& node) {
    ValueId x = node.inputs[0];
    Node* before = sole_producer<BatchNorm>(x);
    if (!before) before = sole_producer<Add>(x);
    if (!before) return;
    bool* flag = std::holds_alternative<Add>(before->op) ? &std::get<Add>(before->op).relu
                                                         : &std::get<BatchNorm>(before->op).relu;
    if (*flag) return;
    *flag = true;
    node.inputs = before->inputs;
    absorb(node, *before);
  }

  void max_pool(Node& node) {
    using Pair = std::array<int64_t, 2>;
    const auto& pool = std::get<MaxPool>(node.op);
    const Shape& in = g.shape(node.inputs[0]);
    if (pool.kernel != Pair{2, 2} || pool.stride != Pair{2, 2} || pool.padding != Pair{0, 0}) return;
    if (in[2] % 2 != 0 || in[3] % 2 != 0) return;
    Node* bn = sole_producer<BatchNorm>(node.inputs[0]);
    if (!bn || std::get<BatchNorm>(bn->op).add || !std::get<BatchNorm>(bn->op).relu) return;
    std::get<BatchNorm>(bn->op).pool = true;
    node.inputs = bn->inputs;
    absorb(node, *bn);
  }

  void run() {
    for (Node& node : g.nodes) {
      if (std::holds_alternative<Add>(node.op)) add(node);
      if (std::holds_alternative<Relu>(node.op)) relu(node);
      if (std::holds_alternative<MaxPool>(node.op)) max_pool(node);
    }
    std::erase_if(g.nodes, [](const Node& n) { return n.output < 0; });
    for (size_t i = 0; i < g.nodes.size(); ++i) g.values[g.nodes[i].output].producer = static_cast<int>(i);
  }
};

}  // namespace

Graph fuse(Graph graph) {
  Fuser(graph).run();
  return graph;
}

}  // namespace lockstep::nn
