// MPI's non-blocking collectives, waited for politely.
#pragma once

#include "comm/collective.h"
#include "comm/mpi.h"
#include "comm/patience.h"

namespace lockstep::comm {

void finish(MPI_Request request, Patience& patience);
void broadcast(const Operation& operation, MPI_Comm comm, Patience& patience);
void barrier(MPI_Comm comm, Patience& patience);

}  // namespace lockstep::comm
