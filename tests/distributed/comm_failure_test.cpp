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

/// A run that does not end in 60 s counts as code 124.
Outcome execute(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("timeout -k 1 60 " + command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) outcome.text.append(buffer.data(), n);
  int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

/// Runs comm_failing under mpirun.
Outcome run(int ranks, const std::string& arguments) {
  return execute(MPIEXEC " -np " + std::to_string(ranks) + " " COMM_FAILING " " + arguments);
}

/// Runs comm_failing without mpirun, in an environment of nothing else; isolated, so that Open MPI starts no
/// daemon of its own.
Outcome run_alone(const std::string& environment, const std::string& arguments) {
  return execute("env -i OMPI_MCA_ess_singleton_isolated=1 " + environment + " " COMM_FAILING " " +
                 arguments);
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

TEST(Failure, AUserErrorOfOneRankEndsAllWithItsExitCodeAndIsTheOnlyOne) {
  Outcome o = run(4, "throw");
  EXPECT_EQ(o.code, 2) << o.text;
  // The only error; mpirun's note on the abort may overtake what mpirun forwards.
  EXPECT_THAT(o.text, HasSubstr("error: rank '3' on '"));
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
INSTANTIATE_TEST_SUITE_P(Failure, Hanging,
                         testing::Values("hang", "hang-messages", "hang-fast", "hang-compressed"));

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
  EXPECT_THAT(o.text,
              testing::ContainsRegex(
                  "error: rank '0' on '[^']*': waited '1(\\.[0-9])?' s in 'barrier' for rank '3' on"));
  EXPECT_EQ(count(o.text, "error: "), 1u) << o.text;
}

TEST(Failure, AShortTimeoutIsToldWithItsDigits) {
  for (const char* how : {"hang 0.3", "world-hang 0.3"}) {
    Outcome o = run(2, how);
    EXPECT_EQ(o.code, 4) << o.text;
    EXPECT_THAT(o.text, testing::ContainsRegex("waited '(0\\.[3-9][0-9]?|1(\\.[0-9])?)' s ")) << how;
  }
}

TEST(Failure, RanksInDifferentCallsAreNamed) {
  Outcome o = run(2, "world-mixed");
  EXPECT_EQ(o.code, 4) << o.text;
  EXPECT_THAT(o.text, testing::ContainsRegex(
                          "rank '1' on '[^']*' is in 'barrier' while rank '0' on '[^']*' is in 'any'"));
}

TEST(Failure, WithoutALauncherThereIsNoMpiAndOneRank) {
  Outcome o = run_alone("", "throw");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_EQ(o.text.find("error: label '11' in row '5'"), 0u) << o.text;
}

TEST(Failure, TasksThatMpiDoesNotJoinAreRefused) {
  const std::string step = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=8";
  // No PMI at all; then as it looks from inside when the launcher's PMI is not the one that MPI speaks.
  for (const std::string& environment :
       {step, step + " PMI_RANK=1", step + " PMIX_RANK=1", std::string("PMI_RANK=1 PMI_SIZE=8"),
        std::string("OMPI_COMM_WORLD_SIZE=8")}) {
    Outcome o = run_alone(environment, "none");
    EXPECT_EQ(o.code, 2) << environment << '\n' << o.text;
    EXPECT_THAT(o.text,
                testing::StartsWith("error: the launcher started '8' tasks, but MPI did not join them\n"))
        << environment;
  }
}

TEST(Failure, OneRankThatWasAskedForIsAccepted) {
  // The script of a job of eight tasks, and a step of one.
  const std::string batch = "SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_PROCID=0 ",
                    one = "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 ";
  for (const std::string& environment : {batch, batch + one, batch + one + "PMI_RANK=0 PMI_SIZE=1"}) {
    Outcome o = run_alone(environment, "none");
    EXPECT_EQ(o.code, 0) << environment << '\n' << o.text;
  }
  // mpirun starts its daemons with srun, whose step they leave to what they start.
  for (const std::string& environment : {batch, batch + "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "}) {
    Outcome o = execute("env " + environment + MPIEXEC " -np 1 " COMM_FAILING " none");
    EXPECT_EQ(o.code, 0) << environment << '\n' << o.text;
  }
}

}  // namespace
