#include "comm/patience.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "core/error.h"

namespace lockstep::comm {

std::string text_of_wait(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g}", seconds) : fmt::format("{:.0f}", seconds);
}

void Patience::pause(int peer) {
  constexpr int kSpins = 64, kYields = 64;
  constexpr auto kTick = std::chrono::milliseconds(100);
  if (aborted_ && aborted_->load(std::memory_order_acquire))
    throw ClusterError("the collective operation was abandoned", "this rank gave up its communication", "");
  if (++turns_ < kSpins) return;
  if (turns_ < kSpins + kYields) {
    sched_yield();
    return;
  }
  auto now = Clock::now();
  if (!timing_) {
    timing_ = true;
    since_ = last_tick_ = now;
  }
  if (now - last_tick_ > kTick) {
    last_tick_ = now;
    if (tick_) tick_();
  }
  double waited = std::chrono::duration<double>(now - since_).count();
  if (waited > timeout_) late_(peer, waited);
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(100, 10 + turns_ - kSpins - kYields)));
  turns_ = std::min(turns_, 1 << 20);
}

}  // namespace lockstep::comm
