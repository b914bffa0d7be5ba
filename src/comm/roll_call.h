// Who is missing: when an operation does not end, the waiting ranks ask all others where they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/mpi.h"

namespace lockstep::comm {

class World;

/// In a tree a rank waits for its neighbour, which may itself be waiting; who times out first says little. So
/// the communication threads answer each other, while they wait and while they are idle, with the number of
/// the operation that they are in or have finished. One rank's verdict is enough: the others hold theirs
/// back.
///
/// All calls on the communication thread, except the constructor, which is for all ranks together.
class RollCall {
 public:
  explicit RollCall(const World& world);

  void enter(const Operation& operation, uint64_t number);
  void leave();
  /// Answers what other ranks asked; one MPI_Iprobe when nothing was.
  void answer();
  /// Asks all ranks and throws the ClusterError that says who is missing, where. `peer`: the rank whose
  /// message did not come, or -1.
  [[noreturn]] void verdict(int peer, double waited);

 private:
  struct Place {
    uint64_t number = 0;
    uint64_t inside = 0;
  };
  void collect(std::vector<Place>& places, std::vector<char>& answered);
  std::string who_is_missing(const std::vector<Place>& places, const std::vector<char>& answered) const;

  const World& world_;
  Communicator comm_;
  Operation operation_;
  Place place_;
  bool lower_rank_asked_ = false;
};

}  // namespace lockstep::comm
