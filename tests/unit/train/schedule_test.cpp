#include "train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"

namespace lockstep::train {
namespace {

constexpr double kBase = 0.4;
constexpr int64_t kTotal = 100, kEpoch = 10;

std::string error_of(const ScheduleOptions& options, int64_t total = kTotal) {
  try {
    check(options, kBase, total, kEpoch);
  } catch (const UserError& e) {
    return e.what();
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

/// Rates of torch.optim.lr_scheduler at these steps, printed by tests/golden/make_schedules.py.
void expect_rates(const ScheduleOptions& options, const std::array<double, 9>& expected) {
  constexpr std::array<int64_t, 9> steps = {0, 1, 7, 9, 10, 37, 60, 80, 99};
  EXPECT_NO_THROW(check(options, kBase, kTotal, kEpoch));
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(lr(options, kBase, steps[i], kTotal, kEpoch), expected[i], 1e-12)
        << options.name << ", step " << steps[i];
}

TEST(Schedule, ConstantIsTorchs) {
  expect_rates({.name = "constant", .warmup = 1}, {0.04, 0.076, 0.292, 0.364, 0.4, 0.4, 0.4, 0.4, 0.4});
}

TEST(Schedule, StepIsTorchs) {
  expect_rates({.name = "step", .warmup = 1, .step_size = 3},
               {0.04, 0.076, 0.292, 0.364, 0.4, 0.04, 0.004, 0.004, 0.0004});
}

TEST(Schedule, MultistepIsTorchs) {
  expect_rates({.name = "multistep", .warmup = 1, .gamma = 0.2, .milestones = {3.7, 8}},
               {0.04, 0.076, 0.292, 0.364, 0.4, 0.08, 0.08, 0.016, 0.016});
}

TEST(Schedule, CosineIsTorchs) {
  expect_rates(
      {.name = "cosine", .warmup = 1, .min_lr = 0.01},
      {0.04, 0.076, 0.292, 0.364, 0.4, 0.319618124197, 0.171138605355, 0.0556213335918, 0.0101187887313});
  expect_rates({.name = "cosine"}, {0.4, 0.399901312073, 0.395183352388, 0.392058737135, 0.390211303259,
                                    0.279429578127, 0.138196601125, 0.038196601125, 9.86879268537e-05});
}

TEST(Schedule, PolynomialIsTorchs) {
  expect_rates({.name = "polynomial", .warmup = 1, .power = 2},
               {0.04, 0.076, 0.292, 0.364, 0.4, 0.196, 0.079012345679, 0.0197530864198, 4.93827160494e-05});
}

TEST(Schedule, LengthsMayBeGivenInSteps) {
  const ScheduleOptions epochs{.name = "multistep", .warmup = 0.5, .milestones = {3, 4.5}};
  const ScheduleOptions steps{.name = "multistep", .unit = "steps", .warmup = 5, .milestones = {30, 45}};
  for (int64_t s = 0; s < kTotal; ++s)
    ASSERT_EQ(lr(epochs, kBase, s, kTotal, kEpoch), lr(steps, kBase, s, kTotal, kEpoch)) << s;
}

TEST(Schedule, RunsMayEndWithinTheWarmUp) {
  const ScheduleOptions options{.name = "cosine", .warmup = 2};
  EXPECT_NO_THROW(check(options, kBase, 10, kEpoch));
  EXPECT_NEAR(lr(options, kBase, 9, 10, kEpoch), kBase * (0.1 + 0.9 * 9 / 20), 1e-12);
}

TEST(Schedule, NeverFallsBelowItsFloor) {
  EXPECT_EQ(lr({.name = "step", .step_size = 1, .min_lr = 0.03}, kBase, 99, kTotal, kEpoch), 0.03);
  EXPECT_EQ(lr({.name = "cosine", .min_lr = 0.03}, kBase, kTotal + 5, kTotal, kEpoch), 0.03);
}

TEST(Schedule, BadOptionsAreNamed) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of({.name = "cosin"}), HasSubstr("did you mean 'cosine'?"));
  EXPECT_THAT(error_of({.unit = "step"}), HasSubstr("did you mean 'steps'?"));
  EXPECT_THAT(error_of({.warmup = -1}), HasSubstr("schedule.warmup is '-1'"));
  EXPECT_THAT(error_of({.warmup_start = 1.5}), HasSubstr("schedule.warmup_start is '1.5'"));
  EXPECT_THAT(error_of({.min_lr = 0.5}), HasSubstr("schedule.min_lr is '0.5'"));
  EXPECT_THAT(error_of({.name = "step", .gamma = 0}), HasSubstr("schedule.gamma is '0'"));
  EXPECT_THAT(error_of({.name = "step", .step_size = 0.01}), HasSubstr("schedule.step_size is '0.01'"));
  EXPECT_THAT(error_of({.name = "multistep"}), HasSubstr("schedule.milestones is empty"));
  EXPECT_THAT(error_of({.name = "multistep", .milestones = {30, 20}}), HasSubstr("'20' at place '2'"));
  EXPECT_THAT(error_of({.name = "polynomial", .power = 0}), HasSubstr("schedule.power is '0'"));
  EXPECT_THAT(error_of({.name = "cosine"}, 0), HasSubstr("no known length"));
  EXPECT_NO_THROW(check({.name = "constant", .warmup = 3}, kBase, 0, kEpoch));
}

}  // namespace
}  // namespace lockstep::train
