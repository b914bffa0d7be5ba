#include "core/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

namespace lockstep {
namespace {

TEST(ThreadTeam, EachMemberWorksOnItsOwnThreadEveryTime) {
  ThreadTeam team(4);
  std::vector<std::thread::id> first(4), now(4);
  team.run([&](int i) { first[i] = std::this_thread::get_id(); });
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 4u);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  for (int round = 0; round < 1000; ++round) {
    team.run([&](int i) { now[i] = std::this_thread::get_id(); });
    ASSERT_EQ(now, first);
  }
}

TEST(ThreadTeam, AFailureEndsTheWaitOfTheOthersAndIsTheOneThatIsThrown) {
  ThreadTeam team(3);
  for (int failing : {0, 1, 2}) {
    std::atomic<bool> given_up = false;
    std::atomic<int> calls = 0;
    const auto piece = [&](int i) {
      if (i == failing) throw std::runtime_error("member " + std::to_string(i));
      while (!given_up) std::this_thread::yield();
      throw std::logic_error("a consequence");
    };
    const auto give_up = [&] { given_up = true, ++calls; };
    try {
      team.run(piece, give_up);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "member " + std::to_string(failing));
    }
    EXPECT_EQ(calls, 1);
    std::atomic<int> worked = 0;
    team.run([&](int) { ++worked; });  // it can go on
    EXPECT_EQ(worked, 3);
  }
}

TEST(ThreadTeam, OneMemberNeedsNoThread) {
  ThreadTeam team(1);
  int worked = 0;
  team.run([&](int i) { worked += 1 + i; });
  EXPECT_EQ(worked, 1);
  EXPECT_THROW(team.run([](int) { throw std::runtime_error("x"); }), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
