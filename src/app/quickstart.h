// What `trainer` does when it is given no job.
#pragma once

#include <string>

#include "comm/world.h"

namespace lockstep::app {

/// The job file's text for a command line without --job: jobs/fashion_mnist.ini on Fashion-MNIST where it is packed, else on a
/// small generated image set, which is written once, by one rank of a host, in the cache folder. Empty when the command
/// line has a job or a training set of its own, or asks for help. All ranks together.
std::string quickstart_job(comm::World& world, int argc, const char* const* argv);

}  // namespace lockstep::app
