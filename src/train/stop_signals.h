// Signals that ask a run to stop at the next step boundary.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

/// While it lives, the named signals ("USR1", "TERM", ...) only set a flag. INT, which Ctrl-C sends, does so
/// once: a second one ends the process, for whoever will not wait for the next step. One at a time in a
/// process. The handlers that were there before come back afterwards.
class StopSignals {
 public:
  /// Throws UserError for a name that is no signal, or one that cannot be caught.
  explicit StopSignals(const std::vector<std::string>& names);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const;
  std::string name() const;  ///< of the signal that came; "" when none did

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep::train
