// Mixed precision: the same bits in every layout, skipped steps included, and the loss scale's life.
#include <cmath>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::HasSubstr;

struct Layout {
  int ranks, replicas;
  std::string name() const { return std::to_string(ranks) + "x" + std::to_string(replicas); }
};

class Amp : public Refusal {
 protected:
  Amp() { data("train.h5", 203); }
  std::string value(const std::string& run, const std::string& pointer) const {
    return json_at(folder_ / run / "summary.json", pointer);
  }
  /// Trains in each layout and expects one end.
  void expect_same_bits(const std::string& job, const std::vector<Layout>& layouts) const {
    for (const Layout& l : layouts) {
      trained(l.ranks, job + " --run.dir " + l.name() + " --replicas " + std::to_string(l.replicas));
      for (const char* v : {"/params_hash", "/train_loss", "/skipped_steps", "/steps", "/samples"})
        EXPECT_EQ(value(l.name(), v), value(layouts[0].name(), v)) << v << " of " << l.name();
    }
  }
  const std::string job_ =
      "--data.train train.h5 --batch.micro 4 --batch.global 32 --log.every 1 --model.dropout 0.3 --data.flip "
      "true --data.pad 2 --optim.lr 0.02 --schedule.name constant";
};

class AmpBits : public Amp, public testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Trainer, AmpBits, testing::Values("off", "bf16", "fp16"));

TEST_P(AmpBits, AreTheSameInEveryLayoutOverFiftySteps) {
  // A loss scale to begin with that overflows, so that steps are skipped.
  const std::string scale =
      GetParam() == "fp16" ? " --amp.init_scale 1073741824 --amp.growth_interval 5" : "";
  expect_same_bits(
      job_ + " --train.steps 50 --optim.clip_norm 1 --train.ema_decay 0.9 --amp.mode " + GetParam() + scale,
      {{1, 1}, {8, 1}, {1, 4}, {2, 2}});
  if (GetParam() == "fp16")
    EXPECT_GT(number_at(folder_ / "1x1" / "summary.json", "/skipped_steps"), 1);
  else
    EXPECT_EQ(value("1x1", "/skipped_steps"), "0");
}

TEST_P(AmpBits, OfAResidualNetworkToo) {
  data("rgb.h5", 20, "--channels 3");
  expect_same_bits("--data.train rgb.h5 --model.name resnet18_32 --batch.micro 2 --batch.global 8 "
                   "--train.steps 3 --optim.lr 0.01 --amp.mode " +
                       GetParam(),
                   {{1, 1}, {1, 2}, {2, 2}});
}

TEST_F(Amp, PrecisionsDiffer) {
  for (const std::string mode : {"off", "bf16", "fp16"})
    trained(1, job_ + " --train.steps 5 --run.dir " + mode + " --amp.mode " + mode);
  EXPECT_NE(value("off", "/params_hash"), value("bf16", "/params_hash"));
  EXPECT_NE(value("off", "/params_hash"), value("fp16", "/params_hash"));
  EXPECT_NE(value("bf16", "/params_hash"), value("fp16", "/params_hash"));
}

TEST_F(Amp, EmulationIsSaidOnce) {
  EXPECT_EQ(count(trained(2, job_ + " --train.steps 3 --amp.mode fp16").text, "fp16 is emulated"), 1);
}

TEST_F(Amp, ASkippedStepLeavesScheduleAndAverageAlone) {
  const std::string job = job_ +
                          " --train.steps 6 --schedule.name step --schedule.unit steps "
                          "--schedule.step_size 2 --train.ema_decay 0.5 --amp.mode fp16";
  const Outcome o = trained(1, job + " --amp.init_scale 1099511627776 --run.dir skipping");
  EXPECT_THAT(o.text,
              HasSubstr("step 1 was skipped: the gradient of 'fc.weight' is not finite; the loss scale "
                        "is now 5.49756e+11"));
  const double skipped = number_at(folder_ / "skipping" / "summary.json", "/skipped_steps");
  EXPECT_GT(skipped, 3);
  EXPECT_EQ(number_at(folder_ / "skipping" / "summary.json", "/steps"), 6 + skipped);
  // Three learning rates of two taken steps each, whatever was skipped before.
  EXPECT_EQ(count(o.text, "lr 2.0e-04"), 2) << o.text;
}

TEST_F(Amp, TheScaleComesBackOnResume) {
  const std::string job = job_ + " --amp.mode fp16 --amp.init_scale 67108864 --amp.growth_interval 4";
  trained(1, job + " --train.steps 20 --run.dir whole");
  trained(1, job + " --train.steps 7 --run.dir parts");
  trained(2, job + " --train.steps 13 --run.dir parts --resume auto");
  trained(1, job + " --train.steps 20 --run.dir parts --resume auto --replicas 2");
  for (const char* v : {"/params_hash", "/skipped_steps", "/steps"})
    EXPECT_EQ(value("parts", v), value("whole", v)) << v;
  const auto scales = [&](const std::string& run) {
    std::string all, text = bytes_of(folder_ / run / "metrics.jsonl");
    for (size_t at = 0; (at = text.find("\"loss_scale\":", at)) != std::string::npos; ++at)
      all += text.substr(at, text.find('}', at) - at) + "\n";
    return all;
  };
  EXPECT_EQ(scales("parts"), scales("whole"));
  EXPECT_THAT(scales("whole"), testing::ContainsRegex("loss_scale\":[0-9]"));
}

TEST_F(Amp, ScalingThatCannotHelpEndsTheRunWithAdvice) {
  const Outcome o = train(2, job_ + " --train.steps 60 --amp.mode fp16 --optim.lr 1e30 --run.dir run");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("overflows even at a loss scale of '1'"));
  EXPECT_THAT(o.text, HasSubstr("lower optim.lr"));
  EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
}

TEST_F(Amp, EvaluateMeasuresInThePrecisionOfTraining) {
  data("eval.h5", 57, "--eval");
  trained(1, job_ + " --train.steps 8 --amp.mode bf16 --data.eval eval.h5 --run.dir run");
  const Outcome o = run(trainer(2) + " evaluate --resume run --data.eval eval.h5 --replicas 2");
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.6f", number_at(folder_ / "run" / "summary.json", "/eval/loss"));
  EXPECT_THAT(o.text, testing::ContainsRegex(std::string("loss +") + loss));
}

TEST_F(Amp, CompressionLandsCloseAndIsRefusedWhereItWouldBreakAPromise) {
  const std::string job = job_ + " --train.steps 10 --optim.lr 0.003";
  trained(2, job + " --reduction fast --run.dir plain");
  for (const std::string half : {"bf16", "fp16"}) {
    trained(2, job + " --reduction fast --parallel.compress " + half + " --run.dir " + half);
    EXPECT_NEAR(number_at(folder_ / half / "summary.json", "/train_loss"),
                number_at(folder_ / "plain" / "summary.json", "/train_loss"), 0.1);
    EXPECT_NE(value(half, "/params_hash"), value("plain", "/params_hash"));
  }
  expect_refusal(trainer(1) + " " + kGood + "--parallel.compress bf16",
                 {"parallel.compress 'bf16'", "parallel.reduction 'exact'", "--reduction fast"});
  expect_refusal(trainer(1) + " " + kGood + "--parallel.compress bf16 --reduction fast --dp-sync root",
                 {"needs parallel.dp_sync 'allreduce'"});
}

class SyncBatchNorm : public Amp {};

TEST_F(SyncBatchNorm, OverFourDevicesIsOneDeviceOnTheWholeBatch) {
  // 203 samples: the last batch of an epoch leaves devices with part of a shard, and with none.
  const std::string job =
      "--data.train train.h5 --batch.global 32 --train.steps 9 --optim.lr 0.0005 --optim.momentum 0 "
      "--model.dropout 0 --schedule.name constant --model.sync_batch_norm true";
  trained(1, job + " --batch.micro 32 --model.sync_batch_norm false --run.dir whole");
  for (const Layout& l : {Layout{1, 4}, Layout{4, 1}, Layout{2, 2}}) {
    trained(l.ranks,
            job + " --batch.micro 8 --run.dir " + l.name() + " --replicas " + std::to_string(l.replicas));
    EXPECT_EQ(value(l.name(), "/params_hash"), value("1x4", "/params_hash")) << l.name();
  }
  trained(1, job + " --batch.micro 8 --model.sync_batch_norm false --run.dir apart");
  const auto loss = [&](const std::string& run) {
    return number_at(folder_ / run / "summary.json", "/train_loss");
  };
  EXPECT_NEAR(loss("1x4"), loss("whole"), 1e-4 * loss("whole"));
  EXPECT_GT(std::abs(loss("apart") - loss("whole")), 1e-3 * loss("whole"));
}

TEST_F(SyncBatchNorm, WithAccumulationSaysWhatItSpans) {
  const Outcome o = trained(2, kGood + "--model.sync_batch_norm true");
  EXPECT_THAT(o.text, HasSubstr("spans the shards that run at the same time"));
  trained(1, kGood + "--model.sync_batch_norm true --replicas 2 --run.dir dp");
  EXPECT_EQ(value("dp", "/params_hash"), value("run", "/params_hash"));
}

}  // namespace
}  // namespace lockstep::e2e
