// One job in several layouts, one after the other: what `verify` and `compare` share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/session.h"
#include "app/training.h"
#include "train/step.h"

namespace lockstep::app {

/// How the devices of a job are shared out: all ranks of the launch, or rank 0 alone.
struct Layout {
  std::string name;  ///< "DDP"
  int ranks = 1;     ///< all of the launch, or 1
  int replicas = 1;  ///< of each rank
  std::string dp_sync = "allreduce";
  int threads = 0;  ///< of each device

  int devices() const { return ranks * replicas; }
  std::string text() const;  ///< "2 x 4"
};

/// Makes the invocation one of its first steps and no more: as many as train.steps was given for this start,
/// else `usual`; no other limit, no evaluation.
void limit_to_steps(Invocation& invocation, int64_t usual);

/// Gives the job the batch that `train` would work out for `devices`, the same in every layout from then on.
/// Throws UserError.
train::BatchPlan fix_batch(Job& job, int devices);

/// The largest power of two that divides `shards` and is at most `cores`; but 2 where that divides them.
int most_replicas(int64_t shards, size_t cores);

/// Gives all layouts equally many threads a device, since bits depend on that: the fewest that any of them
/// leaves. All ranks together.
void equal_threads(comm::World& world, const Job& job, std::vector<Layout>& layouts);

/// Runs `work` on a thread of its own, which it may bind to cores, in the world of the layout. Of a layout of
/// rank 0 alone the other ranks wait, in touch. All ranks together.
void run_layout(comm::World& world, const Layout& layout, const std::function<void(comm::World&)>& work);

/// The job in a layout, ready for its first step. Its calls are for all ranks of the layout together, on one
/// thread.
class LayoutRun {
 public:
  LayoutRun(comm::World& world, const Job& job, const DataSets& data, const Layout& layout);

  train::StepOutcome step();
  train::ReplicaTeam& team() { return *team_; }
  const Placement& placement() const { return placement_; }
  /// Throws ClusterError unless all devices hold the same bits.
  void check_agreement();

 private:
  comm::World& world_;
  const Job job_;
  const train::BatchPlan plan_;
  const Placement placement_;
  std::unique_ptr<train::ReplicaTeam> team_;
  int64_t steps_ = 0, taken_ = 0;
};

}  // namespace lockstep::app
