#include "core/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/terminal.h"
#include "core/text.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;

Progress::Progress(std::string what, uint64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(on_terminal(STDERR_FILENO)),
      start_(Clock::now()),
      last_(start_) {}

void Progress::advance(uint64_t n) {
  done_ += n;
  auto now = Clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  draw(false);
}

void Progress::finish() { draw(true); }

void Progress::draw(bool last) {
  double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  double fraction = total_ ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1;
  double left = rate > 0 && done_ < total_ ? static_cast<double>(total_ - done_) / rate : 0;
  constexpr int kWidth = 24;
  int filled = static_cast<int>(fraction * kWidth);
  std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  fmt::print(stderr, "{}{} [{}] {:3.0f}%  {} {}  {}/s  {} {}{}", terminal_ && drawn_ ? "\r" : "", what_, bar,
             fraction * 100, with_commas(static_cast<int64_t>(done_)), unit_,
             with_commas(static_cast<int64_t>(rate)), last ? "in" : "eta", human_time(last ? seconds : left),
             terminal_ && !last ? "\033[K"
             : terminal_        ? "\033[K\n"
                                : "\n");
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace lockstep
