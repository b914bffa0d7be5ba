// Who is missing: when an operation does not end, the waiting ranks ask all others where they are.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/mpi.h"

namespace lockstep::comm {

class World;

/// In a tree a rank waits for its neighbour, which may itself be waiting; who times out first says little. So
/// the communication threads answer each other, while they wait and while they are idle, with the number of
/// the operation that they are in or have finished, and how long ago they called the one that is asked about:
/// a rank may have come between the timeout and the question. One rank's verdict is enough: the others hold
/// theirs back.
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
  using Clock = std::chrono::steady_clock;
  /// What travels.
  struct Place {
    uint64_t number = 0;
    uint64_t inside = 0;
    double called = 0;  ///< seconds since the call of the operation asked about; 0 before it
  };
  struct Answer {
    bool here = false;
    Place place;
    double delay = 0;  ///< of that call, in seconds after the asking rank began to wait
  };
  /// The answer to a question about operation `asked`.
  Place place(uint64_t asked) const;
  void collect(std::vector<Answer>& answers, Clock::time_point began);
  std::string who_is_missing(const std::vector<Answer>& answers, double waited) const;
  std::string who_was_late(const std::vector<Answer>& answers, double waited) const;

  const World& world_;
  Communicator comm_;
  Operation operation_;
  uint64_t number_ = 0;
  bool inside_ = false;
  // When the last operations were called, by number; of older ones only that it was before these.
  std::array<Clock::time_point, 64> calls_;
  bool lower_rank_asked_ = false;
};

}  // namespace lockstep::comm
