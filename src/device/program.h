// What a device makes of a graph: the store of a replica's parameters, and programs that run on it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nn/batch.h"
#include "nn/graph.h"

namespace lockstep::device {

/// A range of floats of a flat allocation.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Where one parameter lives in every flat allocation (values, gradients, moments, averages).
struct ParameterSlot {
  std::string name;
  Shape shape;  ///< PyTorch's logical layout
  Range range;  ///< in the flat allocation; may be padded: the padding is and stays zero
  bool norm_or_bias = false;
  std::string layout;  ///< the device's memory layout, for the agreement check
};

struct BufferSlot {
  std::string name;
  Shape shape;
  Range range;
};

/// What one shard adds to a step besides gradients. Summed over shards in the same tree, as floats: counts
/// are exact up to 2^24 samples in a global batch. A sample that weighs nothing (weight 0, or the ignored
/// label) counts in `share` alone.
struct ShardMetrics {
  float loss_sum = 0;    ///< sum of weight * loss
  float weight_sum = 0;  ///< sum of sample weights
  float samples = 0;     ///< samples that weigh anything, each counted once whatever its weight
  float top1 = 0;   ///< of `samples`, those whose label has the largest logit; accuracy is top1 / samples
  float top5 = 0;   ///< and those whose label is among the five largest
  float share = 0;  ///< shard's samples / nominal micro-batch: the weight of its batch-norm statistics
};

/// Sums over all devices, in place, for layers whose statistics span them. Every device makes the same calls
/// in the same order.
class SumOverDevices {
 public:
  virtual ~SumOverDevices() = default;
  virtual void sum(std::span<double> values) = 0;
};

/// A replica's state in flat, aligned memory, parameters in the order in which backward finishes them. Shared
/// by all programs of the replica (training, the last partial shard, evaluation).
class Store {
 public:
  virtual ~Store() = default;

  virtual const std::vector<ParameterSlot>& parameters() const = 0;
  virtual const std::vector<BufferSlot>& buffers() const = 0;

  virtual std::span<float> values() = 0;     ///< parameters
  virtual std::span<float> gradients() = 0;  ///< of the last shard, or what the step made of them
  virtual std::span<float> buffer_values() = 0;
  /// The last shard's metrics (first) and batch-norm statistics, times its share; reduced like gradients.
  virtual std::span<float> statistics() = 0;
  virtual ShardMetrics metrics(std::span<const float> statistics) const = 0;

  /// Logical values of a parameter (or of its moment, average, gradient) out of and into a flat allocation.
  virtual void unpack(const ParameterSlot&, std::span<const float> flat, std::span<float> logical) const = 0;
  virtual void pack(const ParameterSlot&, std::span<const float> logical, std::span<float> flat) const = 0;

  /// Draws every parameter from its Init and resets the buffers.
  virtual void initialize(uint64_t seed) = 0;
  /// Running statistics from the reduced statistics of a step.
  virtual void update_running_statistics(std::span<const float> statistics) = 0;
  /// Makes the copies derived from parameters (other layouts, other precisions) current. Call after every
  /// change.
  virtual void refresh_copies() = 0;
  virtual size_t copy_bytes() const = 0;

  /// Who sums for synchronised batch norm, in all programs of this store; set before the first pass with one.
  virtual void sum_over_devices(SumOverDevices* sum) = 0;
};

enum class Mode { train, evaluate };

/// Keys what is random in a pass, and scales its loss.
struct PassKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  float gradient_scale =
      1;            ///< gradients are of gradient_scale * sum of losses: 1 / the nominal global batch
  float share = 1;  ///< ShardMetrics::share
  /// Multiplies gradients too, not the loss that is reported: keeps small ones from vanishing in fp16
  /// (Micikevicius et al., "Mixed precision training", 2018). Whoever sets it divides the gradients.
  float loss_scale = 1;
};

/// Memory of a program, in bytes, for the plan that people see.
struct ProgramMemory {
  size_t arena = 0;        ///< activations, their gradients, workspaces
  size_t lower_bound = 0;  ///< the least that any plan could use
};

/// What happens in a pass that should not, after the first: counted by the device, asserted by tests.
struct ProgramCounts {
  /// Layout changes of activations a training step. A change of precision alone, layout kept, is not one:
  /// the input's, and those around a product or pool that is computed in fp32 for half values.
  int64_t activation_reorders = 0;
  int64_t primitives_created = 0;
};

/// One compiled graph at one micro-batch. One thread uses it at a time.
class Program {
 public:
  virtual ~Program() = default;
  /// The batch must have exactly graph.batch() samples, and stay where it is until the next load.
  virtual void load(const nn::Batch& batch) = 0;
  /// Runs forward; in training also leaves the loss's gradient ready for backward. Fills Store::statistics().
  virtual void forward(const PassKey& key) = 0;
  /// Fills Store::gradients(). on_ready(range) fires as ranges become final, always in the same order, and
  /// together cover it.
  virtual void backward(const std::function<void(Range)>& on_ready) = 0;
  /// The same two for a device that has no sample in this shard while others have: takes its part in what
  /// spans the devices, and leaves statistics and gradients of zero.
  virtual void forward_empty() = 0;
  virtual void backward_empty(const std::function<void(Range)>& on_ready) = 0;
  /// [N, classes] of the last forward.
  virtual void logits(std::span<float> out) const = 0;
  virtual ProgramMemory memory() const = 0;
  virtual ProgramCounts counts() const = 0;
};

}  // namespace lockstep::device
