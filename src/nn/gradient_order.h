#pragma once

#include "nn/graph.h"

namespace lockstep::nn {

/// Parameters in the order in which backward finishes their gradients: last node first, weight before bias.
/// The flat storage follows it, so a bucket of gradients that is ready is one contiguous range.
std::vector<ParameterId> gradient_order(const Graph& graph);

}  // namespace lockstep::nn
