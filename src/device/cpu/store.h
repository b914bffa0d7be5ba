// A replica's state on the CPU.
#pragma once

#include <map>
#include <memory>

#include "core/huge_buffer.h"
#include "device/cpu/onednn.h"
#include "device/cpu/paired_weights.h"
#include "device/program.h"
#include "nn/precision.h"

namespace lockstep::device::cpu {

class CpuStore final : public Store {
 public:
  /// `native_bf16`: whether the library computes products of bf16.
  CpuStore(const nn::Graph& fused, const dnnl::engine& engine, nn::Precision precision = nn::Precision::fp32,
           bool native_bf16 = false);

  const std::vector<ParameterSlot>& parameters() const override { return slots_; }
  const std::vector<BufferSlot>& buffers() const override { return buffer_slots_; }
  std::span<float> values() override { return values_.as<float>(); }
  std::span<float> gradients() override { return gradients_.as<float>(); }
  std::span<float> buffer_values() override { return buffers_.as<float>(); }
  std::span<float> statistics() override { return statistics_.as<float>(); }
  ShardMetrics metrics(std::span<const float> statistics) const override;
  void unpack(const ParameterSlot&, std::span<const float> flat, std::span<float> logical) const override;
  void pack(const ParameterSlot&, std::span<const float> logical, std::span<float> flat) const override;
  void initialize(uint64_t seed) override;
  void update_running_statistics(std::span<const float> statistics) override;
  void refresh_copies() override;
  size_t copy_bytes() const override;
  void sum_over_devices(SumOverDevices* sum) override { sum_ = sum; }

  // For the kernels.
  SumOverDevices* sum_over_devices() const { return sum_; }
  nn::Precision precision() const { return precision_; }
  /// The type of half values, and the type in which products of them are computed.
  memory::data_type half_type() const;
  memory::data_type product_type() const { return product_type_; }
  const memory::desc& layout(nn::ParameterId p) const { return layouts_[p]; }
  float* value(nn::ParameterId p) { return values().data() + slots_[slot_of_[p]].range.begin; }
  float* gradient(nn::ParameterId p) { return gradients().data() + slots_[slot_of_[p]].range.begin; }
  Range range(nn::ParameterId p) const { return slots_[slot_of_[p]].range; }
  float* buffer(nn::BufferId b) { return buffer_values().data() + buffer_slots_[b].range.begin; }
  /// Where a batch norm leaves the shard's mean for this buffer (running_mean or running_var).
  float* statistic(nn::BufferId b) { return statistics().data() + kMetrics + buffer_slots_[b].range.begin; }
  /// The parameter's values in a layout of floats or of the half type, rounded to half in mixed precision;
  /// kept current by refresh_copies(). The parameter itself where nothing differs.
  void* operand(nn::ParameterId p, const memory::desc& md);

  /// One arena for all programs: they never run at the same time. `generation` changes when it moves.
  void reserve_arena(size_t bytes);
  std::byte* arena() const { return arena_.data(); }
  int generation() const { return generation_; }
  const dnnl::engine& engine() const { return engine_; }

 private:
  static constexpr int64_t kMetrics = 16;  ///< floats before the batch-norm statistics
  struct Copy {
    nn::ParameterId parameter;
    dnnl::memory::desc md;
    HugeBuffer data;
    std::optional<PairedWeights> paired;  ///< else the library reorders
    dnnl::reorder reorder;
    dnnl::memory from, to;
    dnnl_exec_arg_t args[2];
  };
  void refresh(std::span<const std::unique_ptr<Copy>> copies);
  void copy_by_library(Copy& copy);

  nn::Precision precision_;
  memory::data_type product_type_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<nn::Parameter> parameters_;  ///< in graph order
  std::vector<size_t> slot_of_;            ///< graph order to flat order
  std::vector<nn::ParameterId> parameter_of_;
  std::vector<memory::desc> layouts_;
  std::vector<ParameterSlot> slots_;
  std::vector<BufferSlot> buffer_slots_;
  std::vector<float> buffer_fill_, buffer_momentum_;
  HugeBuffer values_, gradients_, buffers_, statistics_, arena_;
  std::vector<std::unique_ptr<Copy>> copies_;
  int generation_ = 0;
  SumOverDevices* sum_ = nullptr;
};

}  // namespace lockstep::device::cpu
