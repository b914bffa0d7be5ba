// Who am I among the ranks, and the small blocking calls of set-up and step boundaries.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::comm {

/// Thrown on every rank by World::all_agree_ok once the message is printed: main returns `exit_code`, nothing
/// more.
class AgreedExit : public std::exception {
 public:
  explicit AgreedExit(int code) : exit_code(code) {}
  const char* what() const noexcept override { return "all ranks agreed to stop"; }
  int exit_code;
};

struct MpiWorld;  // mpi.h: what only this room may see of MPI

/// The ranks of this run. Starts MPI when a launcher's environment is present (mpirun, srun --mpi=pmix), else
/// it is a world of one rank without MPI, ready at once. Ends MPI in the destructor.
///
/// The calls below are for all ranks together, in the same order, one thread a rank at a time. They go
/// through rank 0, which therefore knows who is missing: past the timeout they throw ClusterError with the
/// ranks' names.
class World {
 public:
  /// Throws UserError when a launcher started several tasks but MPI did not join them (it would be N worlds
  /// of one).
  World();
  /// This rank alone, without MPI: for what it does while the others wait.
  static World alone();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< among the ranks on this host
  int local_size() const { return local_size_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  ///< by rank
  const std::string& host() const { return hosts_[rank_]; }
  /// "rank '3' on 'node2'"
  std::string name_of(int rank) const;

  /// Seconds that a call waits for the other ranks; 600 at the start.
  void set_timeout(double seconds) { timeout_ = seconds; }

  /// Every rank's bytes, by rank. `call` names the call in errors; ranks in different calls are a
  /// ClusterError.
  std::vector<std::string> all_gather(std::string_view mine, std::string_view call = "all_gather");
  /// One plain value a rank, by rank.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather_values(const T& mine) {
    std::vector<T> all;
    for (const std::string& bytes :
         all_gather({reinterpret_cast<const char*>(&mine), sizeof(T)}, "all_gather_values"))
      all.push_back(*reinterpret_cast<const T*>(bytes.data()));
    return all;
  }
  /// The root's bytes on every rank; what the others pass is ignored.
  std::string broadcast(std::string_view bytes, int root = 0);
  void barrier();
  /// Whether any rank says true.
  bool any(bool mine);
  /// Returns once `ready` has been true on every rank at once, asked again and again: ranks stay in touch, so
  /// this may take longer than the timeout. For work on a thread beside this one.
  void until_all(const std::function<bool()>& ready);

  /// The ranks whose value differs from the most common one (rank 0's when tied); the same list on every
  /// rank. `name` says what is compared, and must itself be equal on all ranks.
  std::vector<int> agree(std::string_view name, std::string_view value);
  std::vector<int> agree(std::string_view name, uint64_t hash);

  /// The end of a piece of set-up: each rank passes its error, or null. When any rank has one, rank 0 prints
  /// each distinct message once with its ranks, and all ranks throw AgreedExit with the first one's exit
  /// code.
  void all_agree_ok(const std::exception* error);
  /// Runs `piece` and passes what it threw to all_agree_ok.
  void together(const std::function<void()>& piece);

  /// Prints the error (with rank and host when there are several) and ends all ranks with its exit code: an
  /// Error's own, AgreedExit's silently, else 1. Callable from any thread; the first call wins.
  [[noreturn]] void fail(const std::exception& error) noexcept;

  /// Null in a world without MPI.
  MpiWorld* mpi() const { return mpi_.get(); }

 private:
  struct Alone {};
  explicit World(Alone);

  std::unique_ptr<MpiWorld> mpi_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  double timeout_ = 600;
  uint32_t calls_ = 0;
  std::atomic_flag failing_;
  std::vector<std::string> hosts_;
};

/// 0, 1, 2, 5 -> "ranks '0-2', '5'"; one rank -> "rank '5'".
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::comm
