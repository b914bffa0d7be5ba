// Weight gradients of convolutions whose input and output gradient are native bf16: for each tap of the
// kernel a matrix product over all pixels of the batch, on the blocked layouts as they are.
//
// Why our own: the library writes both operands anew, transposed, before it multiplies, which costs up to
// half as much as the product. Here the gradient's pixels are paired in registers, and the input's once for
// all output channels, in the first cache. Threads share out the weights and not the pixels, so that the bits
// do not depend on their number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::device::cpu {

struct WeightGradient {
  struct Axis {
    int64_t in, out;  ///< pixels
    int64_t kernel, stride, padding, dilation;
  };
  int64_t samples;
  int64_t inputs, outputs;  ///< blocks of 16 channels
  Axis height, width;

  /// Whether the processor has the instruction and no tile unit, which the library makes use of.
  static bool pays();
  /// Bytes of scratch that `threads` threads need.
  static size_t scratch_bytes(int threads);
  /// x is [samples, inputs, height, width, 16] and dy [samples, outputs, height, width, 16], both bf16; dw is
  /// floats, [outputs, inputs, kernel height, kernel width, 16 of input, 16 of output]. Only where it pays().
  void run(const uint16_t* x, const uint16_t* dy, float* dw, std::byte* scratch) const;
};

}  // namespace lockstep::device::cpu
