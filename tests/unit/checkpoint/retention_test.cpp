#include "checkpoint/retention.h"

#include <cmath>

#include "checkpoint/load.h"
#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RetentionTest : public Scratch {
 protected:
  fs::path save(int64_t step, std::optional<double> metric = {}, bool higher = true) {
    Snapshot s = make_snapshot(step);
    if (metric) s.state.metric = Metric{"m", *metric, higher};
    return write_checkpoint(dir_, s);
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> steps;
    for (const Entry& entry : list_entries(dir_)) {
      EXPECT_EQ(entry.suffix, "");
      steps.push_back(entry.step);
    }
    return steps;
  }
};

TEST_F(RetentionTest, TheNewestAreKept) {
  fs::path last;
  for (int64_t step : {1, 2, 3, 4, 5}) last = save(step);
  EXPECT_THAT(prune(dir_, {.keep = 2}, last), ElementsAre("step-00000003", "step-00000002", "step-00000001"));
  EXPECT_THAT(steps(), ElementsAre(5, 4));
}

TEST_F(RetentionTest, ZeroKeepsAll) {
  fs::path last;
  for (int64_t step : {1, 2, 3}) last = save(step);
  EXPECT_THAT(prune(dir_, {.keep = 0}, last), IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(3, 2, 1));
}

TEST_F(RetentionTest, TheOnlyWholeOneIsNeverRemoved) {
  fs::path committed = save(1);
  for (int64_t step : {2, 3, 4}) fs::resize_file(save(step) / kModelFile, 5);
  prune(dir_, {.keep = 1}, committed);
  ASSERT_TRUE(find_latest(dir_).checkpoint);
  EXPECT_EQ(find_latest(dir_).checkpoint->state.step, 1);
}

TEST_F(RetentionTest, TheCommittedOneStaysBehindLaterOnesOfUnknownWorth) {
  fs::path committed = save(1);
  for (int64_t step : {2, 3, 4}) {
    fs::path model = save(step) / kModelFile;  // damaged in a way that only hashing shows
    std::string text = read_text(model);
    text.back() = static_cast<char>(text.back() ^ 1);
    write_text(model, text);
  }
  prune(dir_, {.keep = 1}, committed);
  EXPECT_EQ(find_latest(dir_).checkpoint->state.step, 1);
}

TEST_F(RetentionTest, ADamagedOneTakesNoPlaceOfAWholeOne) {
  save(1);
  fs::resize_file(save(2) / kModelFile, 5);
  fs::path last = save(3);
  prune(dir_, {.keep = 2}, last);
  EXPECT_THAT(steps(), ElementsAre(3, 2, 1));
  prune(dir_, {.keep = 1}, last);
  EXPECT_THAT(steps(), ElementsAre(3));
}

TEST_F(RetentionTest, TheBestIsKeptBesidesTheNewest) {
  save(1, 0.5), save(2, 0.9), save(3, 0.9), save(4, std::nan(""));
  fs::path last = save(5, 0.7);
  prune(dir_, {.keep = 1, .best = "m"}, last);
  EXPECT_THAT(steps(), ElementsAre(5, 2));
}

TEST_F(RetentionTest, TheBestCanBeTheLowest) {
  save(1, 0.5, false), save(2, 0.9, false);
  fs::path last = save(3, 0.7, false);
  prune(dir_, {.keep = 1, .best = "m"}, last);
  EXPECT_THAT(steps(), ElementsAre(3, 1));
}

TEST_F(RetentionTest, TheBestIsKeptWhenTheCommittedOneHasNoMetric) {
  save(1, 0.5), save(2, 0.4);
  fs::path last = save(3);
  prune(dir_, {.keep = 1, .best = "m"}, last);
  EXPECT_THAT(steps(), ElementsAre(3, 1));
}

TEST_F(RetentionTest, StaleLeftoversAreCleaned) {
  save(1);
  for (const char* name : {"step-00000002.partial", "step-00000003.trash"}) {
    fs::create_directory(dir_ / name);
    write_text(dir_ / name / "x", "x");
  }
  fs::copy(dir_ / "step-00000001", dir_ / "step-00000001.replaced");
  fs::copy(dir_ / "step-00000001", dir_ / "step-00000004.replaced");
  fs::create_directory(dir_ / "step-mine.partial");
  clean_stale(dir_);
  EXPECT_THAT(steps(), ElementsAre(4, 1));
  EXPECT_TRUE(fs::exists(dir_ / "step-mine.partial"));
}

}  // namespace
}  // namespace lockstep::checkpoint
