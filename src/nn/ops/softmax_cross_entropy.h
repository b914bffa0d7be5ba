#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// The sum over samples of weight * cross entropy as torch.nn.functional.cross_entropy(reduction='sum');
/// logits [N, classes]. Labels and sample weights come with the batch. Dividing by the global count is the
/// step's business, so that shards of unequal size stay right. A sample that weighs nothing has no loss and
/// no gradient, whatever its logits.
struct SoftmaxCrossEntropy {
  double label_smoothing = 0;
  int32_t ignore_index = -100;  ///< samples with this label weigh nothing
};

inline Shape output_shape(const SoftmaxCrossEntropy&, const Shape&) { return {}; }

}  // namespace lockstep::nn
