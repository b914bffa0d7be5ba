#include "train/replica_team.h"

#include "core/error.h"

namespace lockstep::train {

ReplicaTeam::ReplicaTeam(int rank, int replicas)
    : members_(replicas),
      abort_([this] {
        for (Member& m : members_)
          if (m.collective) m.collective->abort();
      }),
      threads_(replicas) {
  for (int i = 0; i < replicas; ++i) members_[i].device_index = rank * replicas + i;
}

void ReplicaTeam::run(const std::function<void(Member&)>& piece) {
  // Two pointers: small enough for std::function to hold without allocating.
  threads_.run([this, &piece](int i) { piece(members_[i]); }, abort_);
}

void ReplicaTeam::require_all() const {
  if (threads_.failing())
    throw ClusterError("the work was abandoned", "another replica of this rank gave up",
                       "look at the message before");
}

}  // namespace lockstep::train
