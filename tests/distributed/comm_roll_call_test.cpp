#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "comm/roll_call.h"
#include "core/error.h"
#include "distributed/mpi_test.h"

namespace lockstep::comm {
namespace {

using test::world;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Rank 0 waits for half a second in operation 7, then calls the roll. The last rank is in `last` by then,
/// since `after` it; all others are in operation 7 from the start. What rank 0 says; "" on the others.
std::string why_after(uint64_t last, milliseconds after) {
  RollCall roll_call(world());
  const bool late = world().rank() == world().size() - 1;
  const Operation operation{.kind = Operation::Kind::all_reduce, .count = 1000};
  roll_call.enter(operation, 6);
  roll_call.leave();
  world().barrier();
  const auto start = Clock::now();
  if (late) std::this_thread::sleep_until(start + after);
  for (uint64_t number = 7; number <= (late ? last : 7); ++number) roll_call.enter(operation, number);
  if (world().rank() != 0) {
    auto end = std::async(std::launch::async, [] { world().barrier(); });
    while (end.wait_for(milliseconds(1)) != std::future_status::ready) roll_call.answer();
    return "";
  }
  std::string why;
  std::this_thread::sleep_until(start + milliseconds(500));
  try {
    roll_call.verdict(world().size() - 1, 0.5);
  } catch (const ClusterError& e) {
    EXPECT_THAT(e.headline(), HasSubstr("waited '0.5' s for rank '"));
    why = e.why();
  }
  world().barrier();
  return why;
}

class RollCallTest : public testing::Test {
 protected:
  void SetUp() override {
    if (world().size() == 1) GTEST_SKIP() << "for 2 ranks and more";
  }
};

TEST_F(RollCallTest, ARankThatHasNotCalledIsMissing) {
  const std::string why = why_after(6, milliseconds(0));
  if (world().rank() != 0) return;
  EXPECT_THAT(why, HasSubstr("has not called operation '7'; it finished operation '6'"));
}

TEST_F(RollCallTest, ARankThatCameAfterTheTimeoutIsNamedAsLate) {
  const std::string why = why_after(7, milliseconds(600));
  if (world().rank() != 0) return;
  EXPECT_THAT(why, HasSubstr(world().name_of(world().size() - 1) + " arrived late"));
  EXPECT_THAT(
      why, testing::ContainsRegex(
               "it called operation '7' '(0\\.[5-9][0-9]?|1(\\.[0-9])?)' s after this rank began to wait"));
}

TEST_F(RollCallTest, SoIsOneThatHasGoneOnSince) {
  const std::string why = why_after(9, milliseconds(600));
  if (world().rank() != 0) return;
  EXPECT_THAT(why, HasSubstr("arrived late: it called operation '7' '"));
}

TEST_F(RollCallTest, RanksThatAllCameInTimeAreNotLate) {
  const std::string why = why_after(7, milliseconds(0));
  if (world().rank() != 0) return;
  EXPECT_EQ(why, "all ranks are in this operation, but no data moves between them");
}

}  // namespace
}  // namespace lockstep::comm
