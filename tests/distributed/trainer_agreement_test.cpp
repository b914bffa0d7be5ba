// Ranks that were started differently are told so, before the first step.
#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

class Agreement : public Refusal {
 protected:
  Agreement() { data("train.h5", 64); }

  /// Three ranks, of which the last is given other arguments.
  std::string three(const std::string& two, const std::string& one) const {
    return MPIEXEC " -np 2 " TRAINER " " + two + " : -np 1 " TRAINER " " + one;
  }
  const std::string job_ = kGood + "--reduction fast --batch.global 24 ";
};

TEST_F(Agreement, OtherDataOfOneRankIsNamedWithBothHashes) {
  data("other.h5", 64, "--seed 5");
  expect_refusal(three(job_, job_ + "--data.train other.h5"),
                 {"ranks disagree on data\\.train",
                  "rank '0' on '[^']+': 'xxh3 [0-9a-f]{16}'; rank '2': 'xxh3 [0-9a-f]{16}'"});
  data("eval.h5", 20, "--eval");
  expect_refusal(
      three(job_, job_ + "--data.eval eval.h5"),
      {"ranks disagree on data\\.eval", "rank '0' on '[^']+': 'none'; rank '2': 'xxh3 [0-9a-f]{16}'"});
}

TEST_F(Agreement, EqualDataInAnotherPlaceWillDo) {
  fs::copy(folder_ / "train.h5", folder_ / "copy.h5");
  const Outcome o = run(three(job_, job_ + "--data.train copy.h5 --log.every 7"));
  EXPECT_EQ(o.code, 0) << o.text;
}

TEST_F(Agreement, BadDataOfOneRankIsNamedWithTheRank) {
  data("few.h5", 3);
  expect_refusal(three(job_, job_ + "--data.train none.h5"),
                 {"error: rank '2' on '[^']+': .*", "none\\.h5' .*does not exist"});
  expect_refusal(three(job_, job_ + "--data.train few.h5"),
                 {"error: rank '2' on '[^']+': batch\\.micro '4' is larger than the data"});
  fs::resize_file(folder_ / "few.h5", 1000);
  expect_refusal(three(job_, job_ + "--data.train few.h5"),
                 {"error: rank '2' on '[^']+': file '.*few\\.h5' is cut short"});
}

TEST_F(Agreement, AnotherJobOfOneRankIsNamedByItsFirstOption) {
  expect_refusal(
      three(job_, job_ + "--optim.lr 0.2 --optim.momentum 0.5"),
      {"ranks disagree on optim\\.lr", "rank '0' on '[^']+': '0\\.1'; rank '2': '0\\.2'", "same options"});
  expect_refusal(three(job_, job_ + "--batch.global 48"),
                 {"ranks disagree on batch\\.global", "'24'; rank '2': '48'"});
  expect_refusal(three(job_, ""), {"ranks disagree on "});
  expect_refusal(three(job_, "evaluate --model.weights train.h5 --data.eval train.h5"),
                 {"ranks disagree on the command", "'train'; rank '2': 'evaluate'"});
  expect_refusal(three(job_, "--help"), {"ranks disagree on the command", "'train'; rank '2': 'help'"});
}

TEST_F(Agreement, OtherStartingWeightsOfOneRankAreNamedByTheirFirstParameter) {
  for (const char* seed : {"1", "2"})
    trained(1, job_ + "--batch.global 8 --train.seed " + seed + " --run.dir seed" + seed);
  const auto weights = [](const char* seed) {
    return std::string("--model.weights seed") + seed + "/checkpoints/step-00000003/model.safetensors ";
  };
  // The job names the file; only its contents differ.
  fs::create_directories(folder_ / "a");
  fs::copy(folder_ / "seed2/checkpoints/step-00000003/model.safetensors", folder_ / "a/model.safetensors");
  expect_refusal(three(job_ + weights("1"), job_ + weights("2")), {"ranks disagree on model\\.weights"});
}

}  // namespace
}  // namespace lockstep::e2e
