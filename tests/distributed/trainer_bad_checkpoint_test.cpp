// Checkpoints and weights that do not fit or are damaged.
#include <fstream>
#include <limits>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class BadCheckpoint : public Refusal {
 protected:
  BadCheckpoint() {
    data("train.h5", 203);
    trained(1, kGood + "--checkpoint.every 1");
  }

  void damage(const fs::path& file) const {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(-5, std::ios::end);
    const char old = static_cast<char>(f.peek());
    f.seekp(-5, std::ios::end);
    f.put(static_cast<char>(old ^ 1));
  }
};

TEST_F(BadCheckpoint, OfAnotherModelNamesTheFirstParameterThatDiffers) {
  for (int ranks : {1, 2})
    expect_refusal(
        trainer(ranks) + " " + kGood + "--resume auto --model.name resnet18_32",
        {"checkpoint 'run/checkpoints/step-00000003' is of another model",
         "the first difference in 'model\\.safetensors': 'fc\\.weight' .*in the file.*in the model"});
  data("six.h5", 203, "--classes 6");
  expect_refusal(
      trainer(1) + " " + kGood + "--resume run/checkpoints/step-00000002 --run.dir new --data.train six.h5",
      {"step-00000002' belongs to another run: data\\.train differs"});
}

TEST_F(BadCheckpoint, OfAnotherBatchOrSeedIsRefused) {
  expect_refusal(trainer(1) + " " + kGood + "--resume auto --optim.name adamw",
                 {"belongs to another run: optim\\.name differs"});
  expect_refusal(trainer(1) + " " + kGood + "--resume auto --batch.global 64",
                 {"belongs to another run: batch\\.global differs", "it was '32' then and is '64' now"});
  expect_refusal(trainer(2) + " " + kGood + "--resume auto --train.seed 9",
                 {"belongs to another run: train\\.seed differs", "it was '1' then and is '9' now"});
}

TEST_F(BadCheckpoint, ThatIsDamagedIsNamedAndAnOlderOneUsed) {
  trained(1, kGood + "--run.dir whole --train.steps 5 --schedule.name constant");
  trained(1, kGood + "--run.dir again --train.steps 4 --schedule.name constant --checkpoint.every 1");
  damage(folder_ / "again" / "checkpoints" / "step-00000004" / "model.safetensors");
  for (int ranks : {1, 2})
    expect_refusal(trainer(ranks) + " " + kGood +
                       "--resume again/checkpoints/step-00000004 --run.dir new --schedule.name constant",
                   {"checkpoint '/.*step-00000004' is damaged", "the xxh3 of 'model\\.safetensors' is",
                    "--resume auto"});
  const Outcome o =
      trained(2, kGood + "--resume auto --run.dir again --train.steps 5 --schedule.name constant");
  EXPECT_THAT(o.text, HasSubstr("checkpoint 'again/checkpoints/step-00000004' is damaged and passed over"));
  EXPECT_THAT(o.text, HasSubstr("going on from 'again/checkpoints/step-00000003'"));
  EXPECT_EQ(json_at(folder_ / "again" / "summary.json", "/params_hash"),
            json_at(folder_ / "whole" / "summary.json", "/params_hash"));
}

TEST_F(BadCheckpoint, ThatLacksAFileOrIsNoneIsNamed) {
  fs::remove(folder_ / "run" / "checkpoints" / "step-00000003" / "optimizer.safetensors");
  expect_refusal(trainer(1) + " " + kGood + "--resume run/checkpoints/step-00000003 --run.dir new",
                 {"step-00000003' is damaged", "'optimizer\\.safetensors'"});
  fs::create_directory(folder_ / "empty");
  expect_refusal(trainer(1) + " " + kGood + "--resume empty --run.dir new",
                 {"/empty' is not a checkpoint", "it has no 'state\\.json'"});
}

TEST_F(BadCheckpoint, UnderAnotherStepsNameIsDamaged) {
  fs::rename(checkpoint_of(folder_ / "run", 3), checkpoint_of(folder_ / "run", 9));
  const Outcome o = trained(1, kGood + "--resume auto");
  EXPECT_THAT(o.text, ContainsRegex(
                          "step-00000009' is damaged and passed over\n.*it was written as 'step-00000003'"));
  EXPECT_THAT(o.text, HasSubstr("going on from 'run/checkpoints/step-00000002'"));
}

TEST_F(BadCheckpoint, WeightsThatAreNotFiniteAreNamed) {
  const std::string weights = "run/checkpoints/step-00000003/model.safetensors";
  std::fstream f(folder_ / weights, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(-4 * 8, std::ios::end);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 4; ++i) f.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  f.close();
  expect_refusal(trainer(2) + " " + kGood + "--run.dir new --model.weights " + weights,
                 {"tensor '[a-z0-9._]+' in '/.*model\\.safetensors' holds values that are not finite"});
}

TEST_F(BadCheckpoint, WeightsOfOtherClassesAreListed) {
  data("six.h5", 203, "--classes 6");
  const std::string weights = "run/checkpoints/step-00000003/model.safetensors";
  for (int ranks : {1, 2})
    expect_refusal(
        trainer(ranks) + " " + kGood + "--data.train six.h5 --run.dir new --model.weights " + weights,
        {"the weights in '/.*model\\.safetensors' do not fit the model",
         "misshapen: .*\\[4.*in the file.*\\[6.*in the model"});
  data("eval.h5", 20, "--eval --classes 6");
  expect_refusal(trainer(2) + " evaluate --resume run --data.eval eval.h5",
                 {"the model and data\\.eval disagree on the number of classes",
                  "the model has '4', '/.*/eval\\.h5' has '6'"});
  expect_refusal(trainer(2) + " evaluate --resume run --data.eval train.h5 --model.name resnet18_32",
                 {"do not fit the model"});
  expect_refusal(trainer(1) + " evaluate --model.weights train.h5 --data.eval eval.h5", {"train\\.h5'"});
  expect_refusal(trainer(1) + " evaluate --resume auto --run.dir run --model.weights " + weights +
                     " --data.eval eval.h5",
                 {"checkpoint\\.resume 'auto' .* and model\\.weights '.*' .* both give the parameters"});
}

TEST_F(BadCheckpoint, EvaluateTakesTheNewestWholeOne) {
  data("eval.h5", 20, "--eval");
  damage(folder_ / "run" / "checkpoints" / "step-00000003" / "model.safetensors");
  const Outcome o = run(trainer(2) + " evaluate --resume auto --run.dir run --data.eval eval.h5");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("checkpoint 'run/checkpoints/step-00000003' is damaged and passed over"));
  EXPECT_THAT(o.text, ContainsRegex("weights  +run/checkpoints/step-00000002\n"));
  const Outcome named = run(trainer(1) + " evaluate --resume run --data.eval eval.h5 --optim.lr 3");
  EXPECT_EQ(named.code, 0) << named.text;
  EXPECT_THAT(named.text, ContainsRegex("run/checkpoints/step-00000003' is damaged and passed over"));
  EXPECT_THAT(named.text,
              HasSubstr("warning: optim.lr '3' (command line) has no effect: 'evaluate' does not read it"));
  expect_refusal(trainer(2) + " evaluate --resume auto --data.eval eval.h5", {"no checkpoint to evaluate"});
  expect_refusal(trainer(1) + " evaluate --data.eval eval.h5",
                 {"'evaluate' needs parameters: give --resume"});
}

}  // namespace
}  // namespace lockstep::e2e
