#include "nn/precision.h"

#include <algorithm>

namespace lockstep::nn {

const char* name_of(Precision p) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16"};
  return names[static_cast<int>(p)];
}

PrecisionClass precision_class(const Op& op) {
  if (std::holds_alternative<Conv2d>(op) || std::holds_alternative<Linear>(op)) return PrecisionClass::half;
  if (std::holds_alternative<Input>(op) || std::holds_alternative<SoftmaxCrossEntropy>(op))
    return PrecisionClass::fp32;
  return PrecisionClass::follows;
}

// Values that end in the loss and nowhere else, nothing but operators of one input that follow in between.
static std::vector<bool> logits_of(const Graph& g) {
  std::vector<bool> logits(g.values.size()), elsewhere(g.values.size());
  for (auto node = g.nodes.rbegin(); node != g.nodes.rend(); ++node) {
    const bool passes = std::holds_alternative<SoftmaxCrossEntropy>(node->op) ||
                        (precision_class(node->op) == PrecisionClass::follows && node->inputs.size() == 1 &&
                         logits[node->output] && !elsewhere[node->output]);
    for (ValueId v : node->inputs) (passes ? logits : elsewhere)[v] = true;
  }
  for (size_t v = 0; v < logits.size(); ++v) logits[v] = logits[v] && !elsewhere[v];
  return logits;
}

std::vector<Precision> storage_precision(const Graph& g, Precision half,
                                         const std::vector<ValueId>& given_half) {
  std::vector<Precision> stored(g.values.size(), Precision::fp32);
  const std::vector<bool> logits = logits_of(g);
  for (const Node& node : g.nodes) {
    if (logits[node.output]) continue;
    const auto is_half = [&](ValueId v) { return stored[v] != Precision::fp32; };
    const bool given = std::find(given_half.begin(), given_half.end(), node.output) != given_half.end();
    const PrecisionClass c = precision_class(node.op);
    if (given || c == PrecisionClass::half ||
        (c == PrecisionClass::follows && std::any_of(node.inputs.begin(), node.inputs.end(), is_half)))
      stored[node.output] = half;
  }
  return stored;
}

}  // namespace lockstep::nn
