#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "core/error.h"
#include "distributed/mpi_test.h"

namespace lockstep::comm {
namespace {

using test::world;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(World, RanksOfOneHostHaveLocalRanksInOrder) {
  World& w = world();
  EXPECT_EQ(w.hosts().size(), static_cast<size_t>(w.size()));
  EXPECT_FALSE(w.host().empty());
  EXPECT_EQ(w.local_rank(), w.rank());  // the tests run on one host
  EXPECT_EQ(w.local_size(), w.size());
}

TEST(World, AllGatherKeepsEveryRanksBytes) {
  World& w = world();
  // Sizes from none to beyond MPI's eager limit, with zero bytes inside.
  std::string mine(w.rank() * 100'000, static_cast<char>(w.rank()));
  auto all = w.all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(w.size()));
  for (int r = 0; r < w.size(); ++r) EXPECT_EQ(all[r], std::string(r * 100'000, static_cast<char>(r)));
}

TEST(World, AllGatherValuesAreByRank) {
  auto all = world().all_gather_values<int64_t>(7 * world().rank());
  for (int r = 0; r < world().size(); ++r) EXPECT_EQ(all[r], 7 * r);
}

TEST(World, BroadcastComesFromTheRoot) {
  for (int root = 0; root < world().size(); ++root) {
    std::string mine = "bytes of " + std::to_string(world().rank());
    EXPECT_EQ(world().broadcast(mine, root), "bytes of " + std::to_string(root));
  }
}

TEST(World, AnyIsTrueWhenOneRankSaysSo) {
  EXPECT_FALSE(world().any(false));
  EXPECT_TRUE(world().any(world().rank() == world().size() - 1));
  EXPECT_TRUE(world().any(true));
}

TEST(World, AgreeNamesTheRanksThatDiffer) {
  World& w = world();
  EXPECT_THAT(w.agree("all equal", uint64_t{5}), IsEmpty());
  if (w.size() < 3) return;
  EXPECT_THAT(w.agree("one differs", uint64_t{w.rank() == 2 ? 1u : 0u}), ElementsAre(2));
  EXPECT_THAT(w.agree("rank 0 differs", w.rank() == 0 ? "a" : "b"), ElementsAre(0));
}

TEST(World, TwoThatDisagreeFollowRankZero) {
  if (world().size() != 2) GTEST_SKIP() << "for 2 ranks";
  EXPECT_THAT(world().agree("a tie", uint64_t(world().rank())), ElementsAre(1));
}

TEST(World, AnErrorOfOneRankAtSetUpStopsAllWithItsExitCode) {
  World& w = world();
  w.all_agree_ok(nullptr);
  testing::internal::CaptureStderr();
  int code = 0;
  try {
    w.together([&] {
      if (w.rank() == w.size() - 1) throw ClusterError("the what", "the why", "the todo");
    });
  } catch (const AgreedExit& e) {
    code = e.exit_code;
  }
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, kClusterFailed);
  if (w.rank() == 0) {
    EXPECT_THAT(text, testing::HasSubstr("the what\n  the why\n  the todo"));
    std::string who = w.size() > 1 ? w.name_of(w.size() - 1) + ": " : "";
    EXPECT_THAT(text, testing::HasSubstr("error: " + who + "the what"));
  } else {
    EXPECT_EQ(text, "");
  }
}

TEST(World, AnErrorOfAllRanksIsPrintedOnce) {
  World& w = world();
  testing::internal::CaptureStderr();
  EXPECT_THROW(w.together([] { throw UserError("same for all", "", ""); }), AgreedExit);
  std::string text = testing::internal::GetCapturedStderr();
  if (w.rank() != 0) return;
  size_t first = text.find("same for all");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("same for all", first + 1), std::string::npos);
  std::string who = w.size() > 1 ? "ranks '0-" + std::to_string(w.size() - 1) + "': " : "";
  EXPECT_THAT(text, testing::HasSubstr("error: " + who + "same for all"));
}

TEST(TextOfRanks, JoinsNeighbours) {
  EXPECT_EQ(text_of_ranks({5}), "rank '5'");
  EXPECT_EQ(text_of_ranks({0, 1, 2, 5, 7, 8}), "ranks '0-2', '5', '7-8'");
}

}  // namespace
}  // namespace lockstep::comm
