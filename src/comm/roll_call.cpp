#include "comm/roll_call.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "comm/world.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep::comm {

namespace {
constexpr int kAsk = 1, kAnswer = 2;
using Clock = std::chrono::steady_clock;
}  // namespace

const char* name_of(Operation::Kind kind) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  return names[static_cast<int>(kind)];
}

RollCall::RollCall(const World& world)
    : world_(world), comm_(Communicator::duplicate(world.mpi()->control)) {}

void RollCall::enter(const Operation& operation, uint64_t number) {
  operation_ = operation;
  place_ = {number, 1};
}

void RollCall::leave() { place_.inside = 0; }

void RollCall::answer() {
  while (true) {
    int asked = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kAsk, comm_, &asked, &status), "MPI_Iprobe");
    if (!asked) return;
    const int from = status.MPI_SOURCE;
    check(MPI_Recv(nullptr, 0, MPI_BYTE, from, kAsk, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    check(MPI_Send(&place_, sizeof place_, MPI_BYTE, from, kAnswer, comm_),
          "MPI_Send");  // eager: never waits
    lower_rank_asked_ = lower_rank_asked_ || from < world_.rank();
  }
}

void RollCall::collect(std::vector<Place>& places, std::vector<char>& answered) {
  // A communication thread looks at least every 100 ms; two seconds allow for a machine with too many ranks.
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  int missing = world_.size() - 1;
  while (missing > 0 && Clock::now() < deadline) {
    answer();
    int found = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kAnswer, comm_, &found, &status), "MPI_Iprobe");
    if (!found) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const int from = status.MPI_SOURCE;
    check(MPI_Recv(&places[from], sizeof(Place), MPI_BYTE, from, kAnswer, comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
    answered[from] = 1;
    --missing;
  }
}

std::string RollCall::who_is_missing(const std::vector<Place>& places,
                                     const std::vector<char>& answered) const {
  std::vector<std::string> lines;
  for (int r = 0; r < world_.size(); ++r) {
    if (!answered[r])
      lines.push_back(fmt::format("{} does not answer: dead, stopped or cut off", world_.name_of(r)));
    else if (places[r].number < place_.number)
      lines.push_back(fmt::format("{} has not called operation '{}'; it {} operation '{}'", world_.name_of(r),
                                  place_.number, places[r].inside ? "is in" : "finished", places[r].number));
  }
  if (lines.empty()) return "all ranks are in this operation, but no data moves between them";
  constexpr size_t kShown = 4;
  std::string text = lines[0];
  for (size_t i = 1; i < std::min(lines.size(), kShown); ++i) text += "; " + lines[i];
  if (lines.size() > kShown) text += fmt::format("; and '{}' more", lines.size() - kShown);
  return text;
}

void RollCall::verdict(int peer, double waited) {
  std::vector<Place> places(world_.size());
  std::vector<char> answered(world_.size(), 0);
  places[world_.rank()] = place_;
  answered[world_.rank()] = 1;
  for (int r = 0; r < world_.size(); ++r) {
    if (r == world_.rank()) continue;
    MPI_Request request;
    check(MPI_Isend(nullptr, 0, MPI_BYTE, r, kAsk, comm_, &request), "MPI_Isend");
    MPI_Request_free(&request);
  }
  collect(places, answered);
  // The lowest rank that asks speaks, and its abort ends this process while it goes on answering.
  for (int tenth = 0; lower_rank_asked_ && tenth < 100; ++tenth) {
    answer();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw ClusterError(
      fmt::format("waited '{:.0f}' s for {} in operation '{}', {} of '{}'", waited,
                  peer < 0 ? "the others" : world_.name_of(peer), place_.number, name_of(operation_.kind),
                  human_bytes(operation_.bytes())),
      who_is_missing(places, answered),
      "look at that rank's last message and its node; raise parallel.timeout if a step may take that long");
}

}  // namespace lockstep::comm
