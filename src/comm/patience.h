// How a thread waits for other ranks: politely, and not for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

namespace lockstep::comm {

/// Seconds that a rank waited, as errors tell them: "300", "2.5", "0.25".
std::string text_of_wait(double seconds);

/// Polls a condition that other ranks make true. A short spin catches what is about to happen; then the core
/// is yielded, then slept on in steps of at most 100 us, because ranks are often more than cores and a
/// communication thread that spins takes the core of the thread that computes.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  /// Called after `timeout` seconds without progress, on the waiting thread; it throws.
  using Late = std::function<void(int peer, double waited)>;

  Patience(double timeout, Late late) : timeout_(timeout), late_(std::move(late)) {}

  /// What else is looked at while waiting, some ten times a second; may throw.
  void on_tick(std::function<void()> tick) { tick_ = std::move(tick); }
  /// Another thread may set it to make a wait throw.
  void watch(const std::atomic<bool>* aborted) { aborted_ = aborted; }

  /// Returns once `ready()` is true. `peer` is the rank that is waited for, -1 when that is all of them.
  template <class Ready>
  void until(int peer, Ready ready) {
    progress();
    while (!ready()) pause(peer);
  }

  /// Starts the back-off and the timeout anew.
  void progress() {
    turns_ = 0;
    timing_ = false;
  }
  /// One turn of waiting. Throws ClusterError when aborted, and what `late` throws.
  void pause(int peer);

 private:
  double timeout_;
  Late late_;
  std::function<void()> tick_;
  const std::atomic<bool>* aborted_ = nullptr;
  int turns_ = 0;
  bool timing_ = false;
  Clock::time_point since_, last_tick_;
};

}  // namespace lockstep::comm
