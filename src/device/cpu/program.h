#pragma once

#include "device/cpu/lowering.h"

namespace lockstep::device::cpu {

class CpuProgram final : public Program {
 public:
  CpuProgram(const nn::Graph& fused, CpuStore& store, Mode mode);

  void load(const nn::Batch& batch) override;
  void forward(const PassKey& key) override;
  void backward(const std::function<void(Range)>& on_ready) override;
  void forward_empty() override;
  void backward_empty(const std::function<void(Range)>& on_ready) override;
  void logits(std::span<float> out) const override;
  ProgramMemory memory() const override { return memory_; }
  ProgramCounts counts() const override;

 private:
  void bind();
  struct Backward {
    Kernel* kernel;
    Range ready;  ///< final after this kernel; may be empty
  };

  nn::Graph graph_;
  CpuStore& store_;
  dnnl::stream stream_;
  std::vector<std::unique_ptr<Kernel>> kernels_, extra_;
  std::vector<Kernel*> forward_;
  std::vector<Backward> backward_;
  std::vector<Slot> slots_;
  std::vector<size_t> offsets_;
  ProgramMemory memory_;
  ProgramCounts counts_;
  int logits_slot_ = -1;
  int bound_generation_ = -1;
  nn::Batch batch_;
  PassKey key_;
};

}  // namespace lockstep::device::cpu
