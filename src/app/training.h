// What training, verifying and comparing build alike: replicas with model, loaders, optimizer, collective,
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/session.h"
#include "train/batch_plan.h"

namespace lockstep::app {

/// The batch of `job` on `devices` devices. Throws UserError where it cannot be shared out, or not exactly.
train::BatchPlan plan_batch(const Job& job, int devices);

/// The replicas of this rank, ready for their first step but for the parameters: compiled, connected with
/// those of the other ranks. Throws UserError where the data, model or memory do not allow it. All ranks
/// together.
std::unique_ptr<train::ReplicaTeam> make_training(comm::World& world, const Job& job, const DataSets& data,
                                                  const train::BatchPlan& plan, const Placement& placement);

/// The starting parameters: drawn from train.seed, or model.weights.
void start_parameters(train::ReplicaTeam& team, const Job& job);

/// Bytes of one replica by purpose.
std::vector<std::pair<std::string, uint64_t>> memory_of(const train::Member& member);

/// What to do about a run that does not fit into memory.
inline constexpr const char* kUseLess =
    "lower batch.micro, start fewer ranks or replicas a host, or choose a smaller model";

}  // namespace lockstep::app
