// The bits of a result do not depend on the number of ranks, nor on the replicas in each.
#include <cmath>

#include "trainer_driver.h"

namespace lockstep::e2e {
namespace {

using testing::HasSubstr;

// 203 samples in global batches of 32: the seventh holds 11, shards of 4, 4 and 3 and five empty ones. Twenty
// steps cross two such ends of an epoch.
const std::string kSteps =
    " --train.steps 20 --batch.micro 4 --batch.global 32 --log.every 1 --data.train train.h5 --data.eval "
    "eval.h5";
const std::string kRandom = " --model.dropout 0.3 --data.flip true --data.pad 2";

struct World {
  int ranks, replicas;
  std::string arguments;  // that must not matter
  std::string name() const { return std::to_string(ranks) + "x" + std::to_string(replicas); }
};
const std::vector<World> kWorlds = {{1, 1, ""},
                                    {2, 1, " --data.threads 3"},
                                    {4, 1, " --parallel.bucket_mib 0.0625"},
                                    {8, 1, " --data.threads 0"},
                                    {1, 4, " --parallel.check_every 3"},
                                    {1, 8, " --dp-sync root --parallel.bucket_mib 0.0625"},
                                    {2, 2, " --parallel.check_every 7"},
                                    {2, 4, " --dp-sync root --data.threads 2"}};

struct Job {
  std::string name, arguments;
};

class Bits : public TrainerTest, public testing::WithParamInterface<Job> {
 protected:
  Bits() {
    data("train.h5", 203);
    data("eval.h5", 57, "--eval");
  }
};

INSTANTIATE_TEST_SUITE_P(
    Trainer, Bits,
    testing::Values(Job{"SgdWithMomentum", " --optim.name sgd --optim.momentum 0.9 --optim.lr 0.05"},
                    Job{"AdamwWithClippingAndAverage",
                        " --optim.name adamw --optim.lr 0.003 --optim.clip_norm 0.5 --train.ema_decay 0.9 "
                        "--schedule.warmup 1 --train.label_smoothing 0.1"}),
    [](const auto& info) { return info.param.name; });

// A line of metrics without what is measured: time and memory.
std::vector<std::string> results(const fs::path& run) {
  std::vector<std::string> lines;
  std::istringstream in(bytes_of(run / "metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    lines.push_back(line.substr(0, std::min(line.find("\"samples_per_second\""), line.find("\"seconds\""))));
  return lines;
}

TEST_P(Bits, AreTheSameInEveryLayout) {
  for (const World& w : kWorlds) {
    const std::string run = w.name();
    trained(w.ranks, "--run.dir " + run + " --replicas " + std::to_string(w.replicas) + kSteps + kRandom +
                         GetParam().arguments + w.arguments);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string mine = bytes_of(checkpoint_of(folder_ / run, 20) / file);
      EXPECT_GT(mine.size(), 1000u);
      EXPECT_TRUE(mine == bytes_of(checkpoint_of(folder_ / "1x1", 20) / file)) << file << " of " << run;
    }
    for (const char* value : {"/params_hash", "/train_loss", "/samples", "/epochs", "/eval/top1",
                              "/eval/top5", "/eval/loss", "/eval/count", "/skipped_steps"})
      EXPECT_EQ(json_at(folder_ / run / "summary.json", value),
                json_at(folder_ / "1x1" / "summary.json", value))
          << value << " of " << run;
    EXPECT_EQ(json_at(folder_ / run / "summary.json", "/world/ranks"), std::to_string(w.ranks));
    EXPECT_EQ(results(folder_ / run), results(folder_ / "1x1")) << run;
  }
  EXPECT_EQ(json_at(folder_ / "1x1" / "summary.json", "/samples"), std::to_string(2 * 203 + 6 * 32));
  EXPECT_EQ(logged_steps(folder_ / "1x1", "train").size(), 20u);

  // What should change the bits does.
  trained(1, "--run.dir seed" + kSteps + kRandom + GetParam().arguments + " --train.seed 2");
  EXPECT_NE(json_at(folder_ / "seed" / "summary.json", "/params_hash"),
            json_at(folder_ / "1x1" / "summary.json", "/params_hash"));
}

// The table of `trainer evaluate`, without the time it took.
std::string table_of(const Outcome& outcome) {
  return outcome.text.substr(0, outcome.text.find("  seconds"));
}

TEST_P(Bits, EvaluateGivesTheNumbersOfTrainingInEveryWorld) {
  trained(2, "--run.dir run" + kSteps + GetParam().arguments);
  const std::string evaluate =
      " evaluate --resume run --data.eval eval.h5 --batch.micro 4" + GetParam().arguments;
  const Outcome alone = run(trainer(1) + evaluate);
  ASSERT_EQ(alone.code, 0) << alone.text;
  for (int ranks : {2, 3, 8})
    EXPECT_EQ(table_of(run(trainer(ranks) + evaluate)), table_of(alone)) << ranks << " ranks";

  const fs::path summary = folder_ / "run" / "summary.json";
  const auto right = [&](const char* metric) {
    return std::to_string(std::lround(57 * number_at(summary, metric)));
  };
  EXPECT_THAT(alone.text, HasSubstr("samples  57\n"));
  EXPECT_THAT(alone.text, testing::ContainsRegex("top-1 .*\\(" + right("/eval/top1") + " right\\)"));
  EXPECT_THAT(alone.text, testing::ContainsRegex("top-5 .*\\(" + right("/eval/top5") + " right\\)"));
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.6f", number_at(summary, "/eval/loss"));
  EXPECT_THAT(alone.text, testing::ContainsRegex(std::string("loss +") + loss));
}

TEST_P(Bits, FastReductionLandsClose) {
  const std::string job = kSteps + GetParam().arguments + " --optim.lr 0.003 --train.steps 10";
  trained(1, "--run.dir exact" + job);
  trained(2, "--run.dir fast --reduction fast" + job);
  for (const char* loss : {"/train_loss", "/eval/loss"})
    EXPECT_NEAR(number_at(folder_ / "fast" / "summary.json", loss),
                number_at(folder_ / "exact" / "summary.json", loss), 1e-3)
        << loss;
}

}  // namespace
}  // namespace lockstep::e2e
