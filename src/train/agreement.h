// Whether all devices still hold the same bits.
#pragma once

#include <cstdint>

#include "comm/world.h"
#include "train/replica_team.h"

namespace lockstep::train {

/// For all ranks together: compares the bits of all parameters and buffers over all devices. Throws
/// ClusterError where they differ, naming the devices in the minority, the first tensor in which they do, and
/// `step`, the steps done.
void check_agreement(ReplicaTeam& team, comm::World& world, int64_t step);

}  // namespace lockstep::train
