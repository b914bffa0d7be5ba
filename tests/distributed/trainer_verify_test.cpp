// `trainer verify`: equal bits are confirmed, other ones found.
#include <regex>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// 203 samples in global batches of 32: the seventh step is the partial one.
const std::string kVerify =
    " verify --data.train train.h5 --batch.micro 4 --batch.global 32 --train.steps 8 --model.dropout 0.3 "
    "--data.flip true --data.pad 2 ";

class Verify : public Refusal {
 protected:
  Verify() { data("train.h5", 203); }
  Outcome verify(int ranks, const std::string& arguments = "", const std::string& environment = "") const {
    return run(environment + trainer(ranks) + kVerify + arguments);
  }
};

// The row of a layout in the table, with its cells.
testing::Matcher<std::string> has_row(const std::string& layout, const std::string& devices,
                                      const std::string& rest) {
  return ContainsRegex("\n +" + layout + " +" + devices + " +[0-9a-f]{16} +" + rest);
}
const std::string kSame = "0 +none +[0-9.]+";

TEST_F(Verify, FindsTheSameBitsInEveryLayoutOfTheLaunch) {
  const std::set<std::string> before = listing();
  for (const int ranks : {1, 2, 4}) {
    const Outcome o = verify(ranks);
    SCOPED_TRACE(o.text);
    EXPECT_EQ(o.code, 0);
    const std::string r = std::to_string(ranks);
    EXPECT_THAT(o.text, has_row("1 device", R"(1 \(1 x 1\))", "reference +[0-9.]+"));
    EXPECT_THAT(o.text, has_row("DP", R"([248] \(1 x [248]\))", kSame));
    if (ranks > 1) {
      EXPECT_THAT(o.text, has_row("DDP", r + R"( \()" + r + R"( x 1\))", kSame));
      EXPECT_THAT(o.text, has_row("hybrid", R"([0-9]+ \()" + r + R"( x [248]\))", kSame));
    }
    EXPECT_EQ(count(o.text, "DDP"), ranks > 1 ? 2 : 0);  // said at its start, and in the table
    EXPECT_THAT(o.text, HasSubstr("8 steps of 32 samples in 8 shards, threads a device: 1"));
    EXPECT_THAT(o.text, HasSubstr("all layouts agree with 1 device within 0 ULP"));
  }
  EXPECT_EQ(listing(), before);
}

TEST_F(Verify, TrainsTheJobAsTrainDoes) {
  const Outcome o = verify(2, "--optim.name adamw --optim.lr 0.003 --optim.clip_norm 0.5 --dp-sync root");
  EXPECT_EQ(o.code, 0) << o.text;
  trained(1,
          "--data.train train.h5 --batch.micro 4 --batch.global 32 --train.steps 8 --model.dropout 0.3 "
          "--data.flip true --data.pad 2 --optim.name adamw --optim.lr 0.003 --optim.clip_norm 0.5 --run.dir "
          "run");
  std::string hash = json_at(folder_ / "run" / "summary.json", "/params_hash");
  std::erase(hash, '"');
  EXPECT_EQ(count(o.text, hash), 4) << hash << "\n" << o.text;

  const Outcome weights =
      verify(2, "--replicas 4 --model.weights run/checkpoints/step-00000008/model.safetensors");
  EXPECT_EQ(weights.code, 0) << weights.text;
  EXPECT_THAT(weights.text, has_row("DP", R"(4 \(1 x 4\))", kSame));
  EXPECT_THAT(weights.text, has_row("hybrid", R"(8 \(2 x 4\))", kSame));
  EXPECT_THAT(weights.text, Not(HasSubstr(hash)));
}

// Rank 1 reads 16 samples of 12 x 12 bytes a step in DDP, which comes before the hybrid.
TEST_F(Verify, NamesLayoutTensorAndStepOfADifference) {
  const Outcome o = verify(2, "--data.threads 1",
                           "env BAD_READ_RANK=1 BAD_READ_BYTES=144 BAD_READ=37 LD_PRELOAD=" BAD_READ " ");
  SCOPED_TRACE(o.text);
  EXPECT_EQ(o.code, 4);
  EXPECT_THAT(o.text, has_row("DDP", R"(2 \(2 x 1\))", "[1-9][0-9,]* +[a-z0-9_.]+ +3 +[0-9.]+"));
  EXPECT_THAT(o.text, has_row("DP", R"([248] \(1 x [248]\))", kSame));
  EXPECT_THAT(o.text, has_row("hybrid", R"([48] \(2 x [24]\))", kSame));
  EXPECT_THAT(o.text, ContainsRegex(R"(DDP \(2 x 1\): [0-9]+ of [0-9]+ tensors differ)"));
  EXPECT_THAT(o.text, HasSubstr("error: layout 'DDP' (2 x 1) does not agree with 1 device within '0' ULP"));
  EXPECT_THAT(o.text, ContainsRegex("was the first to differ, after step '3'"));
  EXPECT_EQ(count(o.text, "error: "), 1);

  // What is accepted passes, and is shown all the same.
  const Outcome accepted =
      verify(2, "--data.threads 1 --verify.max_ulp 8000000000",
             "env BAD_READ_RANK=1 BAD_READ_BYTES=144 BAD_READ=37 LD_PRELOAD=" BAD_READ " ");
  EXPECT_EQ(accepted.code, 0) << accepted.text;
  EXPECT_THAT(accepted.text, ContainsRegex("tensors differ"));
  EXPECT_THAT(accepted.text, HasSubstr("all layouts agree with 1 device within 8000000000 ULP"));
}

TEST_F(Verify, OfFastReductionFailsHonestlyUnlessItsBoundIsStated) {
  const std::string fast = "--reduction fast --batch.global 24 ";  // 6 shards are no whole tree
  const Outcome o = verify(3, fast);
  SCOPED_TRACE(o.text);
  EXPECT_EQ(o.code, 4);
  EXPECT_THAT(o.text, ContainsRegex("tensors differ"));
  EXPECT_THAT(o.text, ContainsRegex("does not agree with 1 device within '0' ULP"));
  EXPECT_THAT(o.text, HasSubstr("--verify.max_ulp"));
  const Outcome stated = verify(3, fast + "--verify.max_ulp 8000000000");
  EXPECT_EQ(stated.code, 0) << stated.text;
}

TEST_F(Verify, RefusesWhatItCannotCompare) {
  const auto refused = [&](int ranks, const std::string& arguments, const std::vector<std::string>& said) {
    expect_refusal(trainer(ranks) + kVerify + arguments, said);
  };
  refused(3, "--batch.global 24", {"exact", "'3' devices", "use '1', '2' devices"});
  refused(3, "", {"'32' cannot be shared out on '3' devices", "these would do"});
  refused(1, "--batch.global 4", {"nothing to verify", "--batch.global '8'"});
  refused(1, "--verify.max_ulps 3", {"unknown option 'verify.max_ulps'; did you mean 'verify.max_ulp'"});
  refused(1, "--verify.max_ulp -1", {"verify.max_ulp '-1'", "at least 0"});
  refused(2, "--data.train none.h5", {"data.train .*none.h5. .* does not exist"});
}

TEST_F(Verify, SaysWhatItDoesNotRead) {
  data("eval.h5", 20, "--eval");
  const Outcome o = verify(1, "--data.eval eval.h5 --run.dir run --checkpoint.every 1");
  EXPECT_EQ(o.code, 0) << o.text;
  for (const char* key : {"data.eval", "run.dir", "checkpoint.every"})
    EXPECT_THAT(o.text, ContainsRegex(std::string("warning: ") + key + ".* 'verify' does not read it"));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

}  // namespace
}  // namespace lockstep::e2e
