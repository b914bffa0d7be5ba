// A model as plain data: values, nodes, parameters and buffers with known shapes. Built once by the calls
// below (models/ makes no other), then compiled by a device. No kernels here.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/shape.h"
#include "nn/ops/activation.h"
#include "nn/ops/add.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/concat.h"
#include "nn/ops/conv2d.h"
#include "nn/ops/dropout.h"
#include "nn/ops/flatten.h"
#include "nn/ops/linear.h"
#include "nn/ops/pool.h"
#include "nn/ops/softmax_cross_entropy.h"

namespace lockstep::nn {

using ValueId = int;
using ParameterId = int;
using BufferId = int;

struct Input {};
using Op = std::variant<Input, Conv2d, Linear, BatchNorm, Relu, Gelu, MaxPool, AvgPool, GlobalAvgPool, Add,
                        Concat, Flatten, Dropout, SoftmaxCrossEntropy>;

/// "conv2d", "batch_norm", ...
const char* op_name(const Op& op);

/// How a parameter starts. Drawn from Philox keyed by (seed, position of the parameter in the graph, element
/// in logical order), so that every device starts from the same bits.
struct Init {
  enum Kind { zeros, ones, uniform, normal } kind = zeros;
  double scale = 0;  ///< half width of the uniform, standard deviation of the normal
};

struct Value {
  Shape shape;
  int producer = -1;  ///< node
};

struct Parameter {
  std::string name;  ///< as PyTorch's state_dict names it
  Shape shape;       ///< PyTorch's logical layout
  Init init;
  bool norm_or_bias = false;  ///< weight decay may leave these out
};

/// State that is not trained: running statistics.
struct Buffer {
  std::string name;
  Shape shape;
  float fill = 0;
};

struct Node {
  std::string name;
  Op op;
  std::vector<ValueId> inputs;
  ValueId output = -1;
  std::vector<ParameterId> parameters;  ///< weight, then bias
  std::vector<BufferId> buffers;        ///< batch norm: running_mean, running_var
};

class Graph {
 public:
  explicit Graph(int64_t batch) : batch_(batch) {}

  /// The image input [C, H, W]; the value is [N, C, H, W]. Exactly one.
  ValueId input(const Shape& sample);
  ValueId conv2d(const std::string& name, ValueId x, const Conv2d& op);
  ValueId linear(const std::string& name, ValueId x, const Linear& op);
  ValueId batch_norm(const std::string& name, ValueId x, const BatchNorm& op = {});
  ValueId relu(ValueId x);
  ValueId gelu(ValueId x);
  ValueId max_pool(ValueId x, const MaxPool& op = {});
  ValueId avg_pool(ValueId x, const AvgPool& op = {});
  ValueId global_avg_pool(ValueId x);
  ValueId add(ValueId a, ValueId b);
  ValueId concat(const std::vector<ValueId>& inputs);
  ValueId flatten(ValueId x);
  ValueId dropout(ValueId x, double p);
  /// The loss; exactly one, and the last node.
  ValueId softmax_cross_entropy(ValueId logits, const SoftmaxCrossEntropy& op = {});

  /// Replaces how the parameter named so starts. Throws std::out_of_range for an unknown name.
  void set_init(const std::string& parameter, Init init);

  int64_t batch() const { return batch_; }
  const Shape& shape(ValueId v) const { return values[v].shape; }
  int64_t parameter_count() const;  ///< trained scalars

  std::vector<Value> values;
  std::vector<Node> nodes;  ///< in an order in which they can run
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;

 private:
  ValueId append(std::string name, Op op, std::vector<ValueId> inputs, const Shape& output);
  ParameterId parameter(Node& node, const std::string& suffix, const Shape& shape, Init init,
                        bool norm_or_bias);
  int64_t batch_;
  uint32_t dropouts_ = 0;
};

}  // namespace lockstep::nn
