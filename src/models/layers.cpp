#include <cmath>

#include "models/families.h"

namespace lockstep::models {

nn::ValueId conv_he(nn::Graph& graph, const std::string& name, nn::ValueId x, nn::Conv2d op) {
  op.bias = false;
  x = graph.conv2d(name, x, op);
  const auto fan_out = static_cast<double>(op.out_channels * op.kernel[0] * op.kernel[1]);
  graph.set_init(name + ".weight", {nn::Init::normal, std::sqrt(2.0 / fan_out)});
  return x;
}

}  // namespace lockstep::models
