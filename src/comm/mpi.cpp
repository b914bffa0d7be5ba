#include "comm/mpi.h"

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "core/error.h"

namespace lockstep::comm {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  // A broken link is often the consequence of a rank that has just failed: that one speaks first, and its
  // abort ends this process while it sleeps.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  MPI_Error_string(code, text, &length);
  throw ClusterError(fmt::format("'{}' failed", call),
                     fmt::format("MPI says '{}'", std::string(text, length)),
                     "look for an earlier message of another rank; check the network between the nodes");
}

Communicator::Communicator(MPI_Comm owned) : comm_(owned) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL || std::uncaught_exceptions() > 0) return;  // freeing is collective
  MPI_Comm_free(&comm_);
}

Communicator Communicator::duplicate(MPI_Comm of) {
  MPI_Comm comm;
  check(MPI_Comm_dup(of, &comm), "MPI_Comm_dup");
  return Communicator(comm);
}

Communicator Communicator::local(MPI_Comm of) {
  MPI_Comm comm;
  check(MPI_Comm_split_type(of, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm), "MPI_Comm_split_type");
  return Communicator(comm);
}

int Communicator::rank() const {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  return rank;
}

int Communicator::size() const {
  int size = 0;
  MPI_Comm_size(comm_, &size);
  return size;
}

MpiWorld::MpiWorld() {
  // MPI's temporaries are as large as the message. Mapped anew at each call they cost a page fault every 4
  // KiB (docs/communication.md), so freed memory stays in the heap.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE)
    throw ClusterError(fmt::format("MPI offers thread level '{}', not MPI_THREAD_MULTIPLE", provided),
                       "a communication thread runs beside the computing one",
                       "use an MPI built with thread support, such as Open MPI 4");
  control = Communicator::duplicate(MPI_COMM_WORLD);
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0) return;
  control = Communicator();
  MPI_Finalize();
}

}  // namespace lockstep::comm
