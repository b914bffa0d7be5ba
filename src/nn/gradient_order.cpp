#include "nn/gradient_order.h"

namespace lockstep::nn {

std::vector<ParameterId> gradient_order(const Graph& graph) {
  std::vector<ParameterId> order;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node)
    order.insert(order.end(), node->parameters.begin(), node->parameters.end());
  return order;
}

}  // namespace lockstep::nn
