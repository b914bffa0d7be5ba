#include "comm/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "comm/patience.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep::comm {

namespace {
constexpr int kAsk = 1, kAnswer = 2;

double seconds_from(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

const char* name_of(Operation::Kind kind) {
  constexpr const char* names[] = {"all_reduce", "reduce",    "reduce_scatter",
                                   "all_gather", "broadcast", "barrier"};
  return names[static_cast<int>(kind)];
}

RollCall::RollCall(const World& world)
    : world_(world), comm_(Communicator::duplicate(world.mpi()->control)) {}

void RollCall::enter(const Operation& operation, uint64_t number) {
  operation_ = operation;
  number_ = number;
  inside_ = true;
  calls_[number % calls_.size()] = Clock::now();
}

void RollCall::leave() { inside_ = false; }

RollCall::Place RollCall::place(uint64_t asked) const {
  Place place{number_, inside_};
  const uint64_t oldest = number_ < calls_.size() ? 1 : number_ - calls_.size() + 1;
  if (asked <= number_) place.called = seconds_from(calls_[std::max(asked, oldest) % calls_.size()]);
  return place;
}

void RollCall::answer() {
  while (true) {
    int asked = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kAsk, comm_, &asked, &status), "MPI_Iprobe");
    if (!asked) return;
    const int from = status.MPI_SOURCE;
    uint64_t number = 0;
    check(MPI_Recv(&number, sizeof number, MPI_BYTE, from, kAsk, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    const Place mine = place(number);
    check(MPI_Send(&mine, sizeof mine, MPI_BYTE, from, kAnswer, comm_), "MPI_Send");  // eager: never waits
    lower_rank_asked_ = lower_rank_asked_ || from < world_.rank();
  }
}

void RollCall::collect(std::vector<Answer>& answers, Clock::time_point began) {
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
    Answer& from = answers[status.MPI_SOURCE];
    check(
        MPI_Recv(&from.place, sizeof(Place), MPI_BYTE, status.MPI_SOURCE, kAnswer, comm_, MPI_STATUS_IGNORE),
        "MPI_Recv");
    from.here = true;
    from.delay = seconds_from(began) - from.place.called;
    --missing;
  }
}

std::string RollCall::who_is_missing(const std::vector<Answer>& answers, double waited) const {
  std::vector<std::string> lines;
  for (int r = 0; r < world_.size(); ++r) {
    const Place& place = answers[r].place;
    if (!answers[r].here)
      lines.push_back(fmt::format("{} does not answer: dead, stopped or cut off", world_.name_of(r)));
    else if (place.number < number_)
      lines.push_back(fmt::format("{} has not called operation '{}'; it {} operation '{}'", world_.name_of(r),
                                  number_, place.inside ? "is in" : "finished", place.number));
  }
  if (lines.empty()) return who_was_late(answers, waited);
  constexpr size_t kShown = 4;
  std::string text = lines[0];
  for (size_t i = 1; i < std::min(lines.size(), kShown); ++i) text += "; " + lines[i];
  if (lines.size() > kShown) text += fmt::format("; and '{}' more", lines.size() - kShown);
  return text;
}

std::string RollCall::who_was_late(const std::vector<Answer>& answers, double waited) const {
  const auto last = std::max_element(answers.begin(), answers.end(),
                                     [](const Answer& a, const Answer& b) { return a.delay < b.delay; });
  // Ranks never call at the same moment; and from a rank that was late, data takes its time to get here.
  if (last->delay < waited / 2) return "all ranks are in this operation, but no data moves between them";
  return fmt::format("{} arrived late: it called operation '{}' '{}' s after this rank began to wait",
                     world_.name_of(static_cast<int>(last - answers.begin())), number_,
                     text_of_wait(last->delay));
}

void RollCall::verdict(int peer, double waited) {
  const auto began =
      Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(waited));
  std::vector<Answer> answers(world_.size());
  answers[world_.rank()] = {true, place(number_)};
  for (int r = 0; r < world_.size(); ++r) {
    if (r == world_.rank()) continue;
    MPI_Request request;
    check(MPI_Isend(&number_, sizeof number_, MPI_BYTE, r, kAsk, comm_, &request), "MPI_Isend");
    MPI_Request_free(&request);
  }
  collect(answers, began);
  // The lowest rank that asks speaks, and its abort ends this process while it goes on answering.
  for (int tenth = 0; lower_rank_asked_ && tenth < 100; ++tenth) {
    answer();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw ClusterError(
      fmt::format("waited '{}' s for {} in operation '{}', {} of '{}'", text_of_wait(waited),
                  peer < 0 ? "the others" : world_.name_of(peer), number_, name_of(operation_.kind),
                  human_bytes(operation_.bytes())),
      who_is_missing(answers, waited),
      "look at that rank's last message and its node; raise parallel.timeout if a step may take that long");
}

}  // namespace lockstep::comm
