// The replicas of one rank: a device, a thread and all that a step works with for each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/collective.h"
#include "core/thread_team.h"
#include "data/loader.h"
#include "device/device.h"
#include "monitor/phase_timer.h"
#include "train/optimizer.h"
#include "train/replica.h"
#include "train/step.h"

namespace lockstep::train {

/// What is not null depends on the command: evaluating needs no optimizer.
struct Member {
  int device_index = 0;  ///< among all devices of the run
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<data::Loader> train, eval;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<comm::Collective> collective;
  std::unique_ptr<Step> step;
  monitor::PhaseTimer timer;

  device::Store& store() const { return replica->store(); }
};

/// Member 0 works on the thread that calls run(). A device belongs to the thread that made it: make it, and
/// use it, in run().
class ReplicaTeam {
 public:
  /// Replica i of this rank is device rank * replicas + i.
  ReplicaTeam(int rank, int replicas);

  int size() const { return threads_.size(); }
  Member& operator[](int i) { return members_[i]; }
  Member& first() { return members_.front(); }

  /// piece(member) on each member's thread; returns when all have ended. When one throws, the collectives of
  /// all are aborted, so that nobody waits for it, and its exception is thrown here.
  void run(const std::function<void(Member&)>& piece);
  /// Called within a long piece now and then: throws when another member has thrown in it.
  void require_all() const;

 private:
  std::vector<Member> members_;
  std::function<void()> abort_;
  ThreadTeam threads_;
};

}  // namespace lockstep::train
