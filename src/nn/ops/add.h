#pragma once

#include "core/shape.h"

namespace lockstep::nn {

/// y = a + b of equal shapes; after the fusion pass y = relu(a + b).
struct Add {
  bool relu = false;  ///< set by the fusion pass
};

inline Shape output_shape(const Add&, const Shape& a) { return a; }

}  // namespace lockstep::nn
