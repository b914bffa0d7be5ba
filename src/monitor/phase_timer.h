// Where the time of a step goes.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::monitor {

/// exposed_comm is time that compute waited for communication; communication hidden behind compute is not in
/// it.
enum class Phase : uint8_t { data, forward, backward, exposed_comm, optimizer, other };
inline constexpr int kPhases = 6;
const char* name_of(Phase phase);  ///< "exposed_comm"

/// Share of the steps' time by phase; they sum to 1 (all 0 before the first step).
using PhaseFractions = std::array<double, kPhases>;

struct PhaseTotals {
  std::array<double, kPhases> seconds{};
  int64_t steps = 0;
  double total_seconds() const;
  PhaseFractions fractions() const;
};

/// A clock: seconds since some fixed moment.
using Clock = double (*)();
double steady_seconds();

/// Adds up wall time by phase. A step's time belongs to exactly one phase at each moment, so that phases sum
/// to the step. Time outside begin_step() and end_step() (evaluation, setting up) is not counted. Never
/// allocates. One thread.
class PhaseTimer {
 public:
  explicit PhaseTimer(Clock clock = steady_seconds) : clock_(clock) {}

  /// Begins in Phase::other.
  void begin_step();
  /// From now on time is this phase's.
  void enter(Phase phase);
  void end_step();

  const PhaseTotals& totals() const { return totals_; }
  /// Totals since the last call.
  PhaseTotals take_interval();
  /// The step time below which a share `q` of the steps lie, in milliseconds, to 0.5 %; 0 before the first
  /// step.
  double step_ms(double q) const;

 private:
  // Bin i holds step times in [kShortest * kRatio^i, kShortest * kRatio^(i+1)): 1 us to over a day in bins of
  // 1 %.
  static constexpr int kBins = 2560;
  Clock clock_;
  Phase phase_ = Phase::other;
  bool in_step_ = false;
  double since_ = 0, step_seconds_ = 0;
  PhaseTotals totals_, taken_;
  std::array<uint32_t, kBins> histogram_{};
};

}  // namespace lockstep::monitor
