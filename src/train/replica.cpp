#include "train/replica.h"

#include <algorithm>

namespace lockstep::train {

Replica::Replica(device::Device& device, BuildGraph build, int64_t micro_batch, nn::Precision precision)
    : device_(device),
      build_(std::move(build)),
      graph_(build_(micro_batch)),
      store_(device.make_store(graph_, precision)) {}

device::Program& Replica::program(device::Mode mode, int64_t samples) {
  auto& program = programs_[{mode, samples}];
  if (!program) program = device_.compile(build_(samples), *store_, mode);
  return *program;
}

device::ProgramMemory Replica::memory() const {
  device::ProgramMemory most;
  for (const auto& [key, program] : programs_) {
    most.arena = std::max(most.arena, program->memory().arena);
    most.lower_bound = std::max(most.lower_bound, program->memory().lower_bound);
  }
  return most;
}

}  // namespace lockstep::train
