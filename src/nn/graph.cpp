#include "nn/graph.h"

#include <cmath>
#include <stdexcept>

#include "core/error.h"

namespace lockstep::nn {

const char* op_name(const Op& op) {
  constexpr const char* names[] = {"input",  "conv2d",   "linear",   "batch_norm",           "relu",
                                   "gelu",   "max_pool", "avg_pool", "global_avg_pool",      "add",
                                   "concat", "flatten",  "dropout",  "softmax_cross_entropy"};
  return names[op.index()];
}

static void require(bool ok, const std::string& node, const std::string& why) {
  if (!ok) throw std::logic_error("graph: node '" + node + "': " + why);
}

ValueId Graph::append(std::string name, Op op, std::vector<ValueId> inputs, const Shape& output) {
  if (name.empty()) name = std::string(op_name(op)) + "_" + std::to_string(nodes.size());
  for (int64_t d : output)
    if (d <= 0)
      throw UserError("the input is too small for the model: '" + name + "' would give " + output.text(),
                      inputs.empty() ? "" : "its own input is " + shape(inputs[0]).text(),
                      "use larger images, or a model with a smaller stem");
  auto v = static_cast<ValueId>(values.size());
  values.push_back({output, static_cast<int>(nodes.size())});
  nodes.push_back({std::move(name), std::move(op), std::move(inputs), v});
  return v;
}

ParameterId Graph::parameter(Node& node, const std::string& suffix, const Shape& shape, Init init,
                             bool norm_or_bias) {
  parameters.push_back({node.name + "." + suffix, shape, init, norm_or_bias});
  node.parameters.push_back(static_cast<ParameterId>(parameters.size()) - 1);
  return node.parameters.back();
}

ValueId Graph::input(const Shape& sample) {
  require(nodes.empty(), "input", "must come first, once");
  return append("input", Input{}, {}, {batch_, sample[0], sample[1], sample[2]});
}

ValueId Graph::conv2d(const std::string& name, ValueId x, const Conv2d& op) {
  const Shape in = shape(x);
  require(in.rank() == 4 && in[1] % op.groups == 0 && op.out_channels % op.groups == 0, name,
          "needs [N, C, H, W] with channels that divide into groups, got " + in.text());
  ValueId y = append(name, op, {x}, output_shape(op, in));
  const int64_t fan_in = in[1] / op.groups * op.kernel[0] * op.kernel[1];
  const Init init{Init::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};  // torch.nn.Conv2d's default
  parameter(nodes.back(), "weight", {op.out_channels, in[1] / op.groups, op.kernel[0], op.kernel[1]}, init,
            false);
  if (op.bias) parameter(nodes.back(), "bias", {op.out_channels}, init, true);
  return y;
}

ValueId Graph::linear(const std::string& name, ValueId x, const Linear& op) {
  const Shape in = shape(x);
  require(in.rank() == 2, name, "needs [N, F], got " + in.text() + "; flatten first");
  ValueId y = append(name, op, {x}, output_shape(op, in));
  const Init init{Init::uniform, 1.0 / std::sqrt(static_cast<double>(in[1]))};  // torch.nn.Linear's default
  parameter(nodes.back(), "weight", {op.out_features, in[1]}, init, false);
  if (op.bias) parameter(nodes.back(), "bias", {op.out_features}, init, true);
  return y;
}

ValueId Graph::batch_norm(const std::string& name, ValueId x, const BatchNorm& op) {
  const Shape in = shape(x);
  require(in.rank() == 4, name, "needs [N, C, H, W], got " + in.text());
  ValueId y = append(name, op, {x}, output_shape(op, in));
  Node& node = nodes.back();
  parameter(node, "weight", {in[1]}, {Init::ones}, true);
  parameter(node, "bias", {in[1]}, {Init::zeros}, true);
  for (const char* suffix : {"running_mean", "running_var"}) {
    node.buffers.push_back(static_cast<BufferId>(buffers.size()));
    buffers.push_back({name + "." + suffix, {in[1]}, suffix == std::string("running_var") ? 1.0f : 0.0f});
  }
  return y;
}

ValueId Graph::relu(ValueId x) { return append("", Relu{}, {x}, shape(x)); }
ValueId Graph::gelu(ValueId x) { return append("", Gelu{}, {x}, shape(x)); }
ValueId Graph::max_pool(ValueId x, const MaxPool& op) {
  return append("", op, {x}, output_shape(op, shape(x)));
}
ValueId Graph::avg_pool(ValueId x, const AvgPool& op) {
  return append("", op, {x}, output_shape(op, shape(x)));
}
ValueId Graph::global_avg_pool(ValueId x) {
  return append("", GlobalAvgPool{}, {x}, output_shape(GlobalAvgPool{}, shape(x)));
}

ValueId Graph::add(ValueId a, ValueId b) {
  require(shape(a) == shape(b), "add", "shapes differ: " + shape(a).text() + " and " + shape(b).text());
  return append("", Add{}, {a, b}, shape(a));
}

ValueId Graph::concat(const std::vector<ValueId>& inputs) {
  std::vector<Shape> shapes;
  for (ValueId v : inputs) {
    Shape s = shape(v), first = shape(inputs[0]);
    require(s.rank() == 4 && s[0] == first[0] && s[2] == first[2] && s[3] == first[3], "concat",
            "inputs must agree in all but channels, got " + first.text() + " and " + s.text());
    shapes.push_back(s);
  }
  return append("", Concat{}, inputs, output_shape(Concat{}, shapes));
}

ValueId Graph::flatten(ValueId x) { return append("", Flatten{}, {x}, output_shape(Flatten{}, shape(x))); }

ValueId Graph::dropout(ValueId x, double p) { return append("", Dropout{p, dropouts_++}, {x}, shape(x)); }

ValueId Graph::softmax_cross_entropy(ValueId logits, const SoftmaxCrossEntropy& op) {
  require(shape(logits).rank() == 2, "softmax_cross_entropy",
          "needs [N, classes], got " + shape(logits).text());
  return append("loss", op, {logits}, output_shape(op, shape(logits)));
}

void Graph::set_init(const std::string& name, Init init) {
  for (Parameter& p : parameters)
    if (p.name == name) {
      p.init = init;
      return;
    }
  throw std::out_of_range("graph: no parameter '" + name + "'");
}

int64_t Graph::parameter_count() const {
  int64_t n = 0;
  for (const Parameter& p : parameters) n += p.shape.count();
  return n;
}

}  // namespace lockstep::nn
