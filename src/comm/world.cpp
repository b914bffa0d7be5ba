#include "comm/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "comm/mpi.h"
#include "comm/patience.h"
#include "core/error.h"

namespace lockstep::comm {

namespace {

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

// What this process's own launcher says. srun comes last: mpirun starts its daemons with it, and they pass
// the variables of that step on.
int launched_tasks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size);
  const char* size = std::getenv("SLURM_STEP_NUM_TASKS");
  return size && std::getenv("SLURM_STEP_ID") ? std::atoi(size) : 1;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// A message is its strings' sizes, then their bytes.
std::string pack(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    uint64_t size = part.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
  }
  for (const std::string& part : parts) out += part;
  return out;
}

std::vector<std::string> unpack(const std::string& bytes, size_t count) {
  std::vector<std::string> parts(count);
  size_t at = count * sizeof(uint64_t);
  for (size_t i = 0; i < count; ++i) {
    uint64_t size;
    std::memcpy(&size, bytes.data() + i * sizeof size, sizeof size);
    parts[i] = bytes.substr(at, size);
    at += size;
  }
  return parts;
}

int int_size(const std::string& bytes) {
  if (bytes.size() > size_t{1} << 30)
    throw std::length_error(fmt::format("a set-up message of '{}' bytes is over 1 GiB", bytes.size()));
  return static_cast<int>(bytes.size());
}

void send(MPI_Comm comm, int to, int tag, const std::string& bytes, Patience& patience) {
  MPI_Request request;
  check(MPI_Isend(bytes.data(), int_size(bytes), MPI_BYTE, to, tag, comm, &request), "MPI_Isend");
  patience.until(to, [&] {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
}

std::string receive(MPI_Comm comm, int from, int tag, Patience& patience) {
  MPI_Message message;
  MPI_Status status;
  patience.until(from, [&] {
    int found = 0;
    check(MPI_Improbe(from, tag, comm, &found, &message, &status), "MPI_Improbe");
    return found != 0;
  });
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::string bytes(size, '\0');
  check(MPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return bytes;
}

int exit_code_of(const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  return error ? error->exit_code() : kInternalError;
}

std::string text_of(const std::exception& e) {
  if (dynamic_cast<const Error*>(&e)) return e.what();
  return fmt::format("internal error: {}\n  this is a bug in Lockstep", e.what());
}

}  // namespace

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0, last; i < ranks.size(); i = last + 1) {
    for (last = i; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    text += i ? ", " : "";
    text += last == i ? fmt::format("'{}'", ranks[i]) : fmt::format("'{}-{}'", ranks[i], ranks[last]);
  }
  return text;
}

World::World() {
  const int launched = launched_tasks();  // MPI sets such variables itself once it runs
  if (launched_by_mpi()) {
    mpi_ = std::make_unique<MpiWorld>();
    rank_ = mpi_->control.rank();
    size_ = mpi_->control.size();
  }
  if (size_ == 1 && launched > 1) {
    mpi_.reset();
    throw UserError(
        fmt::format("the launcher started '{}' tasks, but MPI did not join them", launched),
        "each task would train alone, on all the data",
        "start with 'srun --mpi=pmix', or with the 'mpirun' of the MPI that this program was built with");
  }
  hosts_ = {host_name()};
  if (!mpi_) return;
  Communicator local = Communicator::local(mpi_->control);
  local_rank_ = local.rank();
  local_size_ = local.size();
  hosts_.assign(size_, "?");
  hosts_ = all_gather(host_name(), "hosts");
}

World::World(Alone) : hosts_{host_name()} {}

World World::alone() { return World(Alone{}); }

World::~World() = default;

std::string World::name_of(int rank) const { return fmt::format("rank '{}' on '{}'", rank, hosts_[rank]); }

std::vector<std::string> World::all_gather(std::string_view mine, std::string_view call) {
  if (size_ == 1) return {std::string(mine)};
  const int tag = static_cast<int>(calls_++ % 32768);
  MPI_Comm comm = mpi_->control;
  auto late = [&](int peer, double waited) {
    throw ClusterError(fmt::format("waited '{}' s in '{}' for {}", text_of_wait(waited), call, name_of(peer)),
                       rank_ == 0
                           ? "that rank hangs, or is still busy with something that the others have finished"
                           : "that rank hangs, or itself waits for another one",
                       "look at that rank's last message; raise parallel.timeout if it was only slow");
  };
  if (rank_ != 0) {
    Patience patience(timeout_ + 5, late);  // rank 0 knows who is missing: let it speak first
    send(comm, 0, tag, pack({std::string(call), std::string(mine)}), patience);
    return unpack(receive(comm, 0, tag, patience), size_);
  }
  Patience patience(timeout_, late);
  std::vector<std::string> all(size_);
  all[0] = mine;
  for (int from = 1; from < size_; ++from) {
    std::vector<std::string> parts = unpack(receive(comm, from, tag, patience), 2);
    if (parts[0] != call)
      throw ClusterError(
          fmt::format("{} is in '{}' while {} is in '{}'", name_of(from), parts[0], name_of(0), call),
          "ranks must make the same calls in the same order", "this is a bug in Lockstep");
    all[from] = std::move(parts[1]);
  }
  const std::string answer = pack(all);
  std::vector<MPI_Request> requests(size_ - 1);
  for (int to = 1; to < size_; ++to)
    check(MPI_Isend(answer.data(), int_size(answer), MPI_BYTE, to, tag, comm, &requests[to - 1]),
          "MPI_Isend");
  for (int to = 1; to < size_; ++to)
    patience.until(to, [&] {
      int done = 0;
      check(MPI_Test(&requests[to - 1], &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  return all;
}

std::string World::broadcast(std::string_view bytes, int root) {
  return all_gather(rank_ == root ? bytes : std::string_view(), "broadcast")[root];
}

void World::barrier() { all_gather("", "barrier"); }

bool World::any(bool mine) {
  for (const std::string& one : all_gather(mine ? "1" : "0", "any"))
    if (one == "1") return true;
  return false;
}

void World::until_all(const std::function<bool()>& ready) {
  while (any(!ready())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

std::vector<int> World::agree(std::string_view name, std::string_view value) {
  std::vector<std::string> all = all_gather(value, fmt::format("agree on {}", name));
  std::map<std::string_view, int> votes;
  for (const std::string& one : all) ++votes[one];
  std::string_view common = all[0];
  for (const std::string& one : all)
    if (votes[one] > votes[common]) common = one;
  std::vector<int> differ;
  for (int r = 0; r < size_; ++r)
    if (all[r] != common) differ.push_back(r);
  return differ;
}

std::vector<int> World::agree(std::string_view name, uint64_t hash) {
  return agree(name, std::string_view(reinterpret_cast<const char*>(&hash), sizeof hash));
}

void World::all_agree_ok(const std::exception* error) {
  std::string mine;
  if (error) {
    const auto* agreed = dynamic_cast<const AgreedExit*>(error);
    mine = fmt::format("{};{}", agreed ? agreed->exit_code : exit_code_of(*error),
                       agreed ? "" : text_of(*error));
  }
  std::vector<std::string> all = all_gather(mine, "all_agree_ok");
  int code = kDone;
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int r = 0; r < size_; ++r) {
    if (all[r].empty()) continue;
    size_t end = all[r].find(';');
    if (code == kDone) code = std::stoi(all[r].substr(0, end));
    std::string text = all[r].substr(end + 1);
    auto same = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == text; });
    if (same == groups.end()) same = groups.insert(groups.end(), {text, {}});
    same->second.push_back(r);
  }
  if (code == kDone) return;
  if (rank_ == 0) {
    for (const auto& [text, ranks] : groups) {
      if (text.empty()) continue;
      std::string who = size_ == 1          ? ""
                        : ranks.size() == 1 ? name_of(ranks[0]) + ": "
                                            : text_of_ranks(ranks) + ": ";
      fmt::print(stderr, "error: {}{}\n", who, text);
    }
    std::fflush(stderr);
  }
  throw AgreedExit(code);
}

void World::together(const std::function<void()>& piece) {
  std::exception_ptr caught;
  try {
    piece();
  } catch (...) {
    caught = std::current_exception();
  }
  if (!caught) return all_agree_ok(nullptr);
  try {
    std::rethrow_exception(caught);
  } catch (const std::exception& e) {
    all_agree_ok(&e);
  }
}

void World::fail(const std::exception& error) noexcept {
  if (failing_.test_and_set())
    while (true) pause();  // another thread speaks; it ends the process
  std::fflush(stdout);
  if (const auto* agreed = dynamic_cast<const AgreedExit*>(&error)) {
    mpi_.reset();
    std::_Exit(agreed->exit_code);
  }
  std::string who = size_ == 1 ? "" : name_of(rank_) + ": ";
  fmt::print(stderr, "error: {}{}\n", who, text_of(error));
  std::fflush(stderr);
  if (mpi_) MPI_Abort(MPI_COMM_WORLD, exit_code_of(error));
  std::_Exit(exit_code_of(error));
}

}  // namespace lockstep::comm
