#include "core/error.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

const std::vector<std::string> kKeys{"batch.micro", "batch.global", "optim.lr", "train.epochs"};

TEST(Nearest, FindsTheTypo) {
  EXPECT_EQ(nearest("batch.mirco", kKeys), "batch.micro");
  EXPECT_EQ(nearest("train.epoch", kKeys), "train.epochs");
  EXPECT_EQ(nearest("optim.lr", kKeys), "optim.lr");
}

TEST(Nearest, SuggestsNothingForWhatIsFarOff) {
  EXPECT_EQ(nearest("xyzzy", kKeys), "");
  EXPECT_EQ(nearest("x", std::vector<std::string>{}), "");
}

TEST(EditDistance, CountsInsertionsDeletionsSubstitutions) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(Error, IsOneLineEachAndSkipsWhatIsEmpty) {
  EXPECT_STREQ(UserError("what", "why", "todo").what(), "what\n  why\n  todo");
  EXPECT_STREQ(UserError("what", "", "todo").what(), "what\n  todo");
}

TEST(Error, CarriesTheExitCodeThatScriptsRelyOn) {
  EXPECT_EQ(UserError("", "", "").exit_code(), 2);
  EXPECT_EQ(ClusterError("", "", "").exit_code(), 4);
}

}  // namespace
}  // namespace lockstep
