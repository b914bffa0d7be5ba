// The trainer's commands, one file each. All ranks call them together; they return the exit code.
#pragma once

#include "app/job.h"
#include "comm/world.h"

namespace lockstep::app {

int train_command(comm::World& world, const Invocation& invocation);
int evaluate_command(comm::World& world, const Invocation& invocation);
int verify_command(comm::World& world, const Invocation& invocation);
int compare_command(comm::World& world, const Invocation& invocation);

}  // namespace lockstep::app
