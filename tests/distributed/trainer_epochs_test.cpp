// Every sample exactly once an epoch, in any layout, for any number of samples and of loader threads.
#include <hdf5.h>

#include <cstdio>
#include <utility>

#include "trainer_driver.h"

namespace lockstep::e2e {
namespace {

struct Sizes {
  int samples, micro, global;
};

class Epochs : public TrainerTest, public testing::WithParamInterface<Sizes> {};

INSTANTIATE_TEST_SUITE_P(Trainer, Epochs,
                         testing::Values(Sizes{1, 1, 8},     // one sample
                                         Sizes{5, 1, 8},     // fewer samples than devices
                                         Sizes{37, 2, 16},   // a last batch of 5, empty shards
                                         Sizes{32, 4, 32}),  // whole batches alone
                         [](const auto& info) { return std::to_string(info.param.samples) + "Samples"; });

TEST_P(Epochs, TrainAndEvaluateEachSampleOnce) {
  const auto [samples, micro, global] = GetParam();
  data("train.h5", samples);
  const std::string job =
      " --data.train train.h5 --data.eval train.h5 --train.epochs 3 --batch.micro " + std::to_string(micro);
  int loaders = 1;
  for (const auto& [ranks, replicas] : std::vector<std::pair<int, int>>{
           {1, 1}, {2, 1}, {4, 1}, {8, 1}, {3, 1}, {1, 2}, {1, 8}, {2, 2}, {4, 2}, {1, 3}}) {
    const std::string run = std::to_string(ranks) + "x" + std::to_string(replicas);
    SCOPED_TRACE(run);
    const int devices = ranks * replicas;
    // Three devices share out a batch of theirs, in an order of MPI's.
    trained(ranks, "--run.dir " + run + job + " --batch.global " +
                       std::to_string(devices == 3 ? 3 * micro * 2 : global) +
                       (devices == 3 ? " --reduction fast" : "") + " --replicas " + std::to_string(replicas) +
                       " --data.threads " + std::to_string(loaders++ % 4));
    const fs::path summary = folder_ / run / "summary.json";
    EXPECT_EQ(json_at(summary, "/samples"), std::to_string(3 * samples));
    EXPECT_EQ(json_at(summary, "/epochs"), "3.0");
    EXPECT_EQ(json_at(summary, "/eval/count"), std::to_string(samples));
    const std::string hash = json_at(folder_ / "1x1" / "summary.json", "/params_hash");
    EXPECT_TRUE(devices == 3 || json_at(summary, "/params_hash") == hash);
  }
}

TEST_F(TrainerTest, DropLastLeavesOutThePartialBatchAlone) {
  data("train.h5", 37);
  trained(2,
          "--run.dir run --data.train train.h5 --data.drop_last true --train.epochs 2 --batch.micro 2 "
          "--batch.global 16");
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/samples"), "64");
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/steps"), "4");
}

class EvaluateCommand : public TrainerTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Trainer, EvaluateCommand, testing::Values(1, 5, 49),
                         testing::PrintToStringParamName());

TEST_P(EvaluateCommand, SeesEverySampleOnce) {
  data("train.h5", 16);
  data("eval.h5", GetParam(), "--eval");
  trained(1, "--run.dir run --data.train train.h5 --train.steps 2 --batch.micro 4");
  std::string alone;
  for (int ranks : {1, 2, 3, 8}) {
    const Outcome o = run(trainer(ranks) + " evaluate --resume run --data.eval eval.h5 --batch.micro 3");
    ASSERT_EQ(o.code, 0) << o.text;
    const std::string table = o.text.substr(0, o.text.find("  seconds"));
    EXPECT_THAT(table, testing::ContainsRegex("samples +" + std::to_string(GetParam()) + "\n"))
        << ranks << " ranks";
    if (ranks == 1) alone = table;
    EXPECT_EQ(table, alone) << ranks << " ranks";
  }
}

// Normalisation and model come from the checkpoint; data.train's normalisation is data.eval's too.
TEST_F(TrainerTest, EvaluateSeesWhatTrainingSaw) {
  data("train.h5", 64);
  data("eval.h5", 50, "--eval");
  const hid_t file = H5Fopen((folder_ / "eval.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  for (const char* name : {"mean", "std"}) EXPECT_GE(H5Adelete(file, name), 0);
  H5Fclose(file);
  const std::string job =
      " --data.train train.h5 --data.eval eval.h5 --train.steps 8 --batch.micro 4 --model.name resnet18_32";
  for (const std::string& more :
       {std::string(), std::string(" --data.mean 0.1 --data.std 0.9 --train.label_smoothing 0.2")}) {
    const std::string run_dir = more.empty() ? "own" : "given";
    trained(2, "--run.dir " + run_dir + job + more);
    const Outcome o = run(trainer(1) + " evaluate --resume " + run_dir + " --data.eval eval.h5");
    ASSERT_EQ(o.code, 0) << o.text;
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.6f", number_at(folder_ / run_dir / "summary.json", "/eval/loss"));
    EXPECT_THAT(o.text, testing::HasSubstr(std::string("loss     ") + loss)) << more;
    EXPECT_EQ(count(o.text, "warning"), 0) << o.text;
  }
  EXPECT_NE(json_at(folder_ / "own/summary.json", "/eval/loss"),
            json_at(folder_ / "given/summary.json", "/eval/loss"));
  const Outcome o =
      run(trainer(1) + " evaluate --resume given --data.eval eval.h5 --data.mean 0.5 --data.std 0.9");
  EXPECT_THAT(o.text,
              testing::HasSubstr("warning: data.mean was '0.1' in training and is '0.5' (command line)"));
}

}  // namespace
}  // namespace lockstep::e2e
