// Handles of MPI with an owner, and its return codes as errors. Only this room's sources include it.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface alone: the old C++ classes need a library of their own
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <utility>

namespace lockstep::comm {

/// Throws ClusterError with MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

/// A communicator that is freed with its owner and returns error codes instead of aborting.
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(MPI_Comm owned);
  ~Communicator();
  Communicator(Communicator&& o) noexcept : comm_(std::exchange(o.comm_, MPI_COMM_NULL)) {}
  Communicator& operator=(Communicator&& o) noexcept {
    std::swap(comm_, o.comm_);
    return *this;
  }
  static Communicator duplicate(MPI_Comm of);
  /// The ranks that share this host's memory.
  static Communicator local(MPI_Comm of);
  operator MPI_Comm() const { return comm_; }
  int rank() const;
  int size() const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// MPI between its initialisation and its end.
struct MpiWorld {
  MpiWorld();   ///< throws ClusterError when MPI offers no MPI_THREAD_MULTIPLE
  ~MpiWorld();  ///< finalises, except while an exception unwinds: the other ranks are not there to meet
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  Communicator control;
};

}  // namespace lockstep::comm
