// Convolution weights in bf16 as the library's products of halves read them: blocks of 16 x 16 channels in
// which two channels that are summed over lie side by side. Every update needs them anew, twice (forward and
// data gradients), and the library's own reorder takes three times as long.
#pragma once

#include <optional>

#include "device/cpu/onednn.h"

namespace lockstep::device::cpu {

class PairedWeights {
 public:
  /// Nothing where `from` and `to` are of other layouts.
  static std::optional<PairedWeights> make(const memory::desc& from, const memory::desc& to);

  /// Writes all weights, rounded to nearest even. The threads of a team call it together; no barrier at the
  /// end.
  void share(const float* from, void* to) const;

 private:
  int64_t rows_ = 0, columns_ = 0, taps_ = 0;  ///< blocks of output channels, of input channels, kernel size
  bool outputs_ = false;                       ///< pairs of output channels, for data gradients
  bool columns_first_ = false;
};

}  // namespace lockstep::device::cpu
