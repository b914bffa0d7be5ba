#include "train/replica_team.h"

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

}  // namespace lockstep::train
