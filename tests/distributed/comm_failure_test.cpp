// Every way to fail ends all ranks, with the exit code and the message of the first cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code;
  std::string text;
};

/// Runs comm_failing; a run that does not end in 60 s counts as code 124.
Outcome run(int ranks, const std::string& arguments) {
  std::string command =
      "timeout -k 1 60 " MPIEXEC " -np " + std::to_string(ranks) + " " COMM_FAILING " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) outcome.text.append(buffer.data(), n);
  int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Failure, NoneIsExitZeroWithoutAWord) {
  Outcome o = run(4, "none");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.text, "");
}

TEST(Failure, AUserErrorOfOneRankEndsAllWithItsExitCodeAndComesFirst) {
  Outcome o = run(4, "throw");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_EQ(o.text.find("error: rank '3' on '"), 0u) << o.text;
  EXPECT_THAT(o.text,
              HasSubstr("': label '11' in row '5'\n  the model has '10' classes\n  check the data\n"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
}

TEST(Failure, AnExceptionOfAnotherKindIsABugWithExitOne) {
  Outcome o = run(2, "bug");
  EXPECT_EQ(o.code, 1) << o.text;
  EXPECT_THAT(o.text, HasSubstr("internal error: index out of range"));
}

TEST(Failure, ErrorsAtSetUpAreGroupedAndEndWithoutAbort) {
  Outcome o = run(4, "setup");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text,
              HasSubstr("error: ranks '1', '3': no file 'a.h5'\n  it does not exist\n  check data.train\n"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
  EXPECT_THAT(o.text, Not(HasSubstr("MPI_ABORT")));
}

class Hanging : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Failure, Hanging, testing::Values("hang", "hang-messages", "hang-fast"));

TEST_P(Hanging, ARankThatNeverCallsIsNamedWithItsPlace) {
  Outcome o = run(4, GetParam() + std::string(" 1"));
  EXPECT_EQ(o.code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("in operation '7', all_reduce of '391 KiB'"));
  EXPECT_THAT(o.text, HasSubstr("has not called operation '7'; it finished operation '6'\n"));
  EXPECT_THAT(o.text, testing::ContainsRegex("\n  rank '3' on '[^']*' has not called"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
}

TEST(Failure, AStoppedProcessIsNamedAsNotAnswering) {
  Outcome o = run(4, "stop 1");
  EXPECT_EQ(o.code, 4) << o.text;
  EXPECT_THAT(o.text,
              testing::ContainsRegex("\n  rank '3' on '[^']*' does not answer: dead, stopped or cut off\n"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
}

TEST(Failure, ARankThatMissesABarrierIsNamed) {
  Outcome o = run(4, "world-hang 1");
  EXPECT_EQ(o.code, 4) << o.text;
  EXPECT_THAT(o.text, testing::ContainsRegex(
                          "error: rank '0' on '[^']*': waited '1' s in 'barrier' for rank '3' on"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
}

TEST(Failure, RanksInDifferentCallsAreNamed) {
  Outcome o = run(2, "world-mixed");
  EXPECT_EQ(o.code, 4) << o.text;
  EXPECT_THAT(o.text, testing::ContainsRegex(
                          "rank '1' on '[^']*' is in 'barrier' while rank '0' on '[^']*' is in 'any'"));
}

TEST(Failure, WithoutALauncherThereIsNoMpiAndOneRank) {
  FILE* pipe = popen("env -i " COMM_FAILING " throw 2>&1", "r");
  std::array<char, 4096> buffer{};
  size_t n = fread(buffer.data(), 1, buffer.size() - 1, pipe);
  int status = pclose(pipe);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(std::string(buffer.data(), n).find("error: label '11' in row '5'"), 0u) << buffer.data();
}

TEST(Failure, TasksOfSrunThatNoMpiReachedAreRefused) {
  FILE* pipe =
      popen("env -i SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=8 " COMM_FAILING " none 2>&1", "r");
  std::array<char, 4096> buffer{};
  size_t n = fread(buffer.data(), 1, buffer.size() - 1, pipe);
  pclose(pipe);
  EXPECT_THAT(std::string(buffer.data(), n), HasSubstr("srun started '8' tasks"));
}

}  // namespace
