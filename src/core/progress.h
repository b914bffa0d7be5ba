// A progress bar with rate and ETA for long work on a terminal; a line now and then in a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

/// One writer. On a terminal the bar is redrawn at most ten times a second; elsewhere a line is printed at
/// most every ten seconds. Writes to standard error.
class Progress {
 public:
  Progress(std::string what, uint64_t total, std::string unit);
  void advance(uint64_t n);
  /// Draws the last state and ends the line.
  void finish();

 private:
  void draw(bool last);
  std::string what_, unit_;
  uint64_t total_, done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace lockstep
