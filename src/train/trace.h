// What a run did to each tensor, step by step, so that two runs can be held against each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/program.h"

namespace lockstep::train {

/// A parameter or buffer.
struct TracedTensor {
  std::string name;
  std::vector<uint64_t> hashes;  ///< xxh3 of its flat values: of the start, then after each step
  std::vector<float> values;     ///< logical, at the end
};

struct Trace {
  std::vector<TracedTensor> tensors;  ///< parameters in backward's order, then buffers
  std::string params_hash;            ///< as in summary.json
};

/// Adds the hashes of the present values.
void record(Trace& trace, device::Store& store);
/// Adds the present values themselves.
void finish(Trace& trace, device::Store& store);

/// How a tensor of one run differs from that of another.
struct Difference {
  std::string name;
  uint64_t ulp = 0;                ///< the largest distance of two elements at the end (train/ulp.h)
  float reference = 0, other = 0;  ///< these elements
  int64_t first_step = 0;          ///< after which the bits were other ones; 0: from the start
};

/// Tensors that ever had other bits than in `reference`, the farthest first. Both traces are of the same
/// model and as many steps.
std::vector<Difference> differences(const Trace& reference, const Trace& other);

/// The one that differed first; null when none did.
const Difference* earliest(const std::vector<Difference>& differences);

}  // namespace lockstep::train
