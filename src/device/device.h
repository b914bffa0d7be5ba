// The one interface to hardware.
#pragma once

#include <memory>
#include <string>

#include "device/program.h"
#include "device/update.h"
#include "nn/precision.h"

namespace lockstep::device {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;  ///< "AMD EPYC, AVX-512, 2 threads"
  virtual int threads() const = 0;
  /// Empty where the device computes in this precision, else a sentence that says how it is emulated.
  virtual std::string precision_note(nn::Precision precision) const = 0;

  /// The storage of one replica of `graph` (any micro-batch of the model will do). Programs of the store
  /// compute in `precision`, by the table of nn/precision.h; parameters, gradients and statistics are fp32 in
  /// any.
  virtual std::unique_ptr<Store> make_store(const nn::Graph& graph,
                                            nn::Precision precision = nn::Precision::fp32) = 0;
  /// Compiles `graph` against `store`, which must come from the same model. All programs of a store share one
  /// arena.
  virtual std::unique_ptr<Program> compile(const nn::Graph& graph, Store& store, Mode mode) = 0;

  // One pass each over flat memory, on all the device's threads; results do not depend on how many.
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
  virtual void fill(std::span<float> to, float value) = 0;
  virtual void add(std::span<const float> a, std::span<float> into) = 0;  ///< into = a + into
  virtual double sum_of_squares(std::span<const float> x) = 0;
  virtual void update(const SgdStep& step, const UpdateRange& range) = 0;
  virtual void update(const AdamWStep& step, const UpdateRange& range) = 0;
};

}  // namespace lockstep::device
