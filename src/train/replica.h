// One copy of the model on one device: its store, and a program for each size of micro-batch that occurs.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "device/device.h"

namespace lockstep::train {

class Replica {
 public:
  /// Builds the model's graph for a micro-batch.
  using BuildGraph = std::function<nn::Graph(int64_t micro_batch)>;

  /// The store takes the layouts that suit `micro_batch` best.
  Replica(device::Device& device, BuildGraph build, int64_t micro_batch,
          nn::Precision precision = nn::Precision::fp32);

  device::Device& device() const { return device_; }
  device::Store& store() const { return *store_; }
  const nn::Graph& graph() const { return graph_; }
  /// Compiled at the first call: ask during set-up for every size that will occur, so that no step compiles.
  device::Program& program(device::Mode mode, int64_t samples);
  /// Memory of the largest program; they share one arena.
  device::ProgramMemory memory() const;

 private:
  device::Device& device_;
  BuildGraph build_;
  nn::Graph graph_;
  std::unique_ptr<device::Store> store_;
  std::map<std::pair<device::Mode, int64_t>, std::unique_ptr<device::Program>> programs_;
};

}  // namespace lockstep::train
