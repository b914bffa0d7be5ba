// Which values of a graph are kept in half precision: mixed precision as a pass, without kernels.
#pragma once

#include <string>
#include <vector>

#include "nn/graph.h"

namespace lockstep::nn {

/// What a replica computes in. fp16: IEEE 754 binary16; bf16: the upper half of a float.
enum class Precision { fp32, bf16, fp16 };

/// "fp32", "bf16", "fp16".
const char* name_of(Precision p);

/// How an operator takes part in mixed precision. After the lists of torch.autocast, which differ between
/// devices; here it is one list.
///
/// | operator                                      | class   |                                             |
/// |-----------------------------------------------|---------|---------------------------------------------|
/// | conv2d, linear                                | half    | products of half values, sums and bias fp32 |
/// | softmax_cross_entropy                         | fp32    |                                             |
/// | batch_norm                                    | follows | its statistics and arithmetic are fp32      |
/// | relu, gelu, add, concat, max_pool, avg_pool,  | follows | arithmetic in fp32, the result rounded once |
/// | global_avg_pool, flatten, dropout             |         |                                             |
///
/// `follows` takes and gives the precision that its input has.
enum class PrecisionClass { half, fp32, follows };
PrecisionClass precision_class(const Op& op);

/// The precision in which each value of `graph`, and its gradient, is stored. The input images are fp32, and
/// so are the logits: what the loss reads, back through operators of one input that follow. An operator that
/// follows inputs of different precision gives `half`. `given_half` are values that count as half whatever
/// makes them: for tests that feed a graph in its middle.
std::vector<Precision> storage_precision(const Graph& graph, Precision half,
                                         const std::vector<ValueId>& given_half = {});

}  // namespace lockstep::nn
