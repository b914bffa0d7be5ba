// A fixed set of threads that do one piece of work together, again and again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

/// Member 0 is the thread that calls run(); the others live as long as the team. A team of one has no thread.
class ThreadTeam {
 public:
  explicit ThreadTeam(int members);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// piece(i) once on the thread of each member i; returns when all have ended. The first member that throws
  /// calls `on_failure`, on its thread, so that the others need not wait for it for ever; then run() throws
  /// what that member threw. One thread calls run(). Allocates nothing.
  void run(const std::function<void(int)>& piece, const std::function<void()>& on_failure = {});
  /// Whether a member has thrown in the piece in hand: the others may as well end. Any member may ask.
  bool failing() const { return failing_.load(std::memory_order_relaxed); }

 private:
  void work(int member);
  void perform(int member);

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(int)>* piece_ = nullptr;
  const std::function<void()>* on_failure_ = nullptr;
  uint64_t round_ = 0;  ///< pieces begun
  int working_ = 0;     ///< members, but for 0, that have not ended the piece in hand
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> failing_ = false;  ///< there is a failure_
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
