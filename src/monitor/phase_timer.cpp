#include "monitor/phase_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace lockstep::monitor {

constexpr double kShortest = 1e-6;
constexpr double kRatio = 1.01;

const char* name_of(Phase phase) {
  constexpr const char* names[] = {"data", "forward", "backward", "exposed_comm", "optimizer", "other"};
  return names[static_cast<int>(phase)];
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double PhaseTotals::total_seconds() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseFractions PhaseTotals::fractions() const {
  PhaseFractions shares{};
  const double total = total_seconds();
  if (total <= 0) return shares;
  for (int i = 0; i < kPhases; ++i) shares[i] = seconds[i] / total;
  return shares;
}

void PhaseTimer::begin_step() {
  in_step_ = true;
  phase_ = Phase::other;
  step_seconds_ = 0;
  since_ = clock_();
}

void PhaseTimer::enter(Phase phase) {
  const Phase before = phase_;
  phase_ = phase;
  if (!in_step_) return;
  const double now = clock_();
  totals_.seconds[static_cast<int>(before)] += now - since_;
  step_seconds_ += now - since_;
  since_ = now;
}

void PhaseTimer::end_step() {
  enter(Phase::other);
  in_step_ = false;
  ++totals_.steps;
  int bin = 0;
  if (step_seconds_ > kShortest)
    bin = static_cast<int>(std::log(step_seconds_ / kShortest) / std::log(kRatio));
  ++histogram_[std::min(bin, kBins - 1)];
}

PhaseTotals PhaseTimer::take_interval() {
  PhaseTotals interval = totals_;
  for (int i = 0; i < kPhases; ++i) interval.seconds[i] -= taken_.seconds[i];
  interval.steps -= taken_.steps;
  taken_ = totals_;
  return interval;
}

double PhaseTimer::step_ms(double q) const {
  if (totals_.steps == 0) return 0;
  const auto rank =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(totals_.steps))));
  int64_t below = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    below += histogram_[bin];
    if (below >= rank) return 1e3 * kShortest * std::pow(kRatio, bin + 0.5);
  }
  return 0;
}

}  // namespace lockstep::monitor
