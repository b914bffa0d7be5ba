#pragma once

#include "nn/graph.h"

namespace lockstep::nn {

/// Joins batch_norm + relu, batch_norm + add + relu, batch_norm + add, add + relu, and batch_norm + relu +
/// 2x2 max_pool into one node each, where the values between them have no other reader. The arithmetic is
/// unchanged; memory traffic is what it saves. Values keep their ids.
Graph fuse(Graph graph);

}  // namespace lockstep::nn
