#include "monitor/phase_timer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "monitor/host_memory.h"

namespace lockstep::monitor {
namespace {

// A clock that the tests turn by hand. Each test file is one thread.
double now = 0;
double hand_clock() { return now; }

double seconds(const PhaseTotals& totals, Phase phase) { return totals.seconds[static_cast<int>(phase)]; }

void step_of(PhaseTimer& timer, double length) {
  timer.begin_step();
  now += length;
  timer.end_step();
}

TEST(PhaseTimer, EachMomentBelongsToOnePhase) {
  PhaseTimer timer(hand_clock);
  timer.begin_step();
  now += 1;
  timer.enter(Phase::data);
  now += 2;
  timer.enter(Phase::forward);
  now += 4;
  timer.enter(Phase::backward);
  now += 8;
  timer.enter(Phase::exposed_comm);
  now += 16;
  timer.enter(Phase::backward);
  now += 32;
  timer.enter(Phase::optimizer);
  now += 64;
  timer.end_step();

  const PhaseTotals& t = timer.totals();
  EXPECT_EQ(seconds(t, Phase::other), 1);
  EXPECT_EQ(seconds(t, Phase::data), 2);
  EXPECT_EQ(seconds(t, Phase::forward), 4);
  EXPECT_EQ(seconds(t, Phase::backward), 40);
  EXPECT_EQ(seconds(t, Phase::exposed_comm), 16);
  EXPECT_EQ(seconds(t, Phase::optimizer), 64);
  EXPECT_EQ(t.total_seconds(), 127);
  EXPECT_EQ(t.steps, 1);
}

TEST(PhaseTimer, TimeBetweenStepsIsNotCounted) {
  PhaseTimer timer(hand_clock);
  step_of(timer, 1);
  now += 100;
  timer.enter(Phase::forward);
  now += 100;
  step_of(timer, 2);
  EXPECT_EQ(timer.totals().total_seconds(), 3);
  EXPECT_EQ(timer.totals().steps, 2);
}

TEST(PhaseTimer, FractionsSumToOneOrAreZeroBeforeTheFirstStep) {
  PhaseTimer timer(hand_clock);
  for (double f : timer.totals().fractions()) EXPECT_EQ(f, 0);
  for (int i = 1; i < 100; ++i) {
    timer.begin_step();
    for (int p = 0; p < kPhases; ++p) {
      timer.enter(static_cast<Phase>(p));
      now += 0.1 / (i + p);
    }
    timer.end_step();
  }
  PhaseFractions f = timer.totals().fractions();
  EXPECT_NEAR(std::accumulate(f.begin(), f.end(), 0.0), 1, 1e-12);
}

TEST(PhaseTimer, AnIntervalHoldsWhatCameSinceTheLastOne) {
  PhaseTimer timer(hand_clock);
  step_of(timer, 1);
  EXPECT_EQ(timer.take_interval().total_seconds(), 1);
  step_of(timer, 2);
  step_of(timer, 2);
  PhaseTotals interval = timer.take_interval();
  EXPECT_EQ(interval.total_seconds(), 4);
  EXPECT_EQ(interval.steps, 2);
  EXPECT_EQ(timer.take_interval().steps, 0);
  EXPECT_EQ(timer.totals().steps, 3);
}

TEST(PhaseTimer, QuantilesOfStepTimes) {
  PhaseTimer timer(hand_clock);
  EXPECT_EQ(timer.step_ms(0.5), 0);
  for (int i = 1; i <= 100; ++i) step_of(timer, 1e-3 * i);
  EXPECT_NEAR(timer.step_ms(0.5), 50, 0.5);
  EXPECT_NEAR(timer.step_ms(0.95), 95, 0.95);
  EXPECT_NEAR(timer.step_ms(1), 100, 1);
  EXPECT_NEAR(timer.step_ms(0), 1, 0.01);
}

TEST(PhaseTimer, StepTimesOutsideTheHistogramStayAtItsEnds) {
  PhaseTimer timer(hand_clock);
  step_of(timer, 0);
  EXPECT_NEAR(timer.step_ms(1), 1e-3, 1e-4);
  step_of(timer, 1e9);
  EXPECT_GT(timer.step_ms(1), 86400e3);
}

TEST(HostMemory, ThePeakIsNoLessThanNow) {
  EXPECT_GT(host_bytes(), uint64_t{1} << 20);
  EXPECT_GE(peak_host_bytes(), host_bytes());
}

}  // namespace
}  // namespace lockstep::monitor
