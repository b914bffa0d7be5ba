// What `trainer` does when it is given no job.
#pragma once

#include <string>

#include "app/job.h"
#include "comm/world.h"

namespace lockstep::app {

/// jobs/fashion_mnist.ini without its data, for parse().
std::string built_in_job();

/// Gives a built-in job its data, and says which: Fashion-MNIST where it is packed, else a small generated
/// image set, which is written once, by one rank of a host, in the cache folder. Leaves data.eval alone where
/// it is set. Any other job stays as it is. All ranks together.
void give_built_in_data(comm::World& world, Invocation& invocation);

}  // namespace lockstep::app
