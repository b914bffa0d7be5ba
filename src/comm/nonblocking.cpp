#include "comm/nonblocking.h"

#include <algorithm>

namespace lockstep::comm {

void finish(MPI_Request request, Patience& patience) {
  patience.until(-1, [&] {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
}

void broadcast(const Operation& operation, MPI_Comm comm, Patience& patience) {
  constexpr size_t kPiece = size_t{1} << 30;  // MPI counts in int
  auto* data = static_cast<std::byte*>(operation.data);
  for (size_t at = 0; at < operation.bytes(); at += kPiece) {
    MPI_Request request;
    check(MPI_Ibcast(data + at, static_cast<int>(std::min(kPiece, operation.bytes() - at)), MPI_BYTE,
                     operation.root, comm, &request),
          "MPI_Ibcast");
    finish(request, patience);
  }
}

void barrier(MPI_Comm comm, Patience& patience) {
  MPI_Request request;
  check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  finish(request, patience);
}

}  // namespace lockstep::comm
