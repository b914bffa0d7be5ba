// For GoogleTest programs that run as several ranks.
#pragma once

#include "comm/world.h"

namespace lockstep::test {

/// The ranks of this test program; made by mpi_main.cpp before the first test.
comm::World& world();

}  // namespace lockstep::test
