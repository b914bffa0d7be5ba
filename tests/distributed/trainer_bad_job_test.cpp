// A job that cannot run: one message, exit code 2, nothing left behind.
#include <fstream>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

struct Mistake {
  std::string name, arguments;
  std::vector<std::string> said;  // regular expressions
};

class BadJob : public Refusal, public testing::WithParamInterface<Mistake> {
 protected:
  BadJob() {
    data("train.h5", 203);
    data("five.h5", 20, "--eval --classes 5");
    std::ofstream(folder_ / "file") << "not a folder";
  }
};

std::string name_of(const testing::TestParamInfo<Mistake>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Options, BadJob,
    testing::Values(
        Mistake{"UnknownOption",
                "--train.step 3",
                {"unknown option 'train\\.step'; did you mean 'train\\.steps'\\?"}},
        Mistake{"UnknownModel", "--model.name resnet51", {"resnet51", "did you mean 'resnet50'\\?"}},
        Mistake{"UnknownCommand", "", {"'trian' is no command; did you mean 'train'\\?"}},
        Mistake{"SeveralAtOnce",
                "--train.step 3 --optim.lr fast --model.weights none.safetensors",
                {"'3' problems", "unknown option 'train\\.step'", "optim\\.lr 'fast'",
                 "none\\.safetensors' .*does not exist"}},
        Mistake{"MissingFile",
                "--data.train none.h5",
                {"data\\.train '/.*/none\\.h5' \\(command line\\) does not exist"}},
        Mistake{"FolderAsFile",
                "--data.train .",
                {"data\\.train '.*' \\(command line\\) is a folder, not a file"}},
        Mistake{"NoHdf5File", "--data.train file", {"/file' is not an HDF5 file", "its '12' bytes"}},
        Mistake{"MissingCheckpoint",
                "--resume none",
                {"checkpoint\\.resume '/.*/none' \\(command line\\) does not exist"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Batches, BadJob,
    testing::Values(
        Mistake{"MicroBatchLargerThanTheData",
                "--batch.micro 256 --batch.global 2048",
                {"batch\\.micro '256' is larger than the data", "'203' samples", "at most '203'"}},
        Mistake{"NumbersBeyondAnyMachine",
                "--batch.micro 4294967296 --batch.accumulation 4294967296 --train.epochs 9223372036854775807",
                {"'3' problems", "batch\\.micro '4294967296' is out of range: at least 0, at most 1000000"}},
        Mistake{"TripleThatDoesNotDivide",
                "--batch.global 30",
                {"batch\\.global '30'.* is no multiple of .*'4'"}},
        Mistake{"AccumulationThatDoesNotDivide",
                "--batch.accumulation 3",
                {"batch\\.global '32'.* is no multiple of batch\\.micro x batch\\.accumulation = '12'"}},
        Mistake{"ShardsThatCannotBeSharedOut",
                "--batch.global 24 --replicas 3",
                {"'exact' cannot sum '6' shards on '[36]' devices", "use '1', '2' devices", "or --reduction fast"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Directories, BadJob,
    testing::Values(Mistake{"UnderAFile",
                            "--run.dir file/run",
                            {"cannot write to run\\.dir 'file'", "it is not a directory"}},
                    Mistake{"InProc", "--run.dir /proc/run", {"cannot write to run\\.dir '/proc/run'"}},
                    Mistake{"AFile", "--run.dir file", {"cannot write to run\\.dir 'file'"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Classes, BadJob,
                         testing::Values(Mistake{
                             "TrainAndEvalDisagree",
                             "--data.eval five.h5",
                             {"data\\.train and data\\.eval disagree on the number of classes",
                              "data\\.train has '4', .*five\\.h5' has '5'"}}),
                         name_of);

TEST_P(BadJob, IsRefusedOnce) {
  const std::string command = GetParam().name == "UnknownCommand" ? " trian " : " ";
  for (int ranks : {1, 2})
    expect_refusal(trainer(ranks) + command + kGood + GetParam().arguments, GetParam().said);
}

TEST_F(BadJob, WorldsThatCannotBeExactAreToldWhichCan) {
  expect_refusal(trainer(3) + " " + kGood + "--batch.global 48",
                 {"'exact' cannot sum '12' shards on '3' devices", "use '1', '2', '4' devices"});
  expect_refusal(trainer(3) + " " + kGood,
                 {"batch\\.global '32' cannot be shared out on '3' devices", "batch\\.global '24', '36'"});
  expect_refusal(
      trainer(2) + " " + kGood + "--batch.global 4",
      {"batch\\.global '4' cannot be shared out on '2' devices", "batch\\.micro '2'", "devices '1'"});
}

TEST_F(BadJob, ARunDirInUseIsLeftAlone) {
  trained(1, kGood);
  const std::string metrics = bytes_of(folder_ / "run" / "metrics.jsonl");
  for (int ranks : {1, 2})
    expect_refusal(trainer(ranks) + " " + kGood,
                   {"run\\.dir 'run' is in use", "it holds a run already", "--resume auto"});
  // Nor does resuming another run take it.
  trained(1, kGood + "--run.dir other");
  expect_refusal(trainer(1) + " " + kGood + "--resume other", {"run\\.dir 'run' is in use"});
  EXPECT_EQ(bytes_of(folder_ / "run" / "metrics.jsonl"), metrics);
}

TEST_F(BadJob, ARunThatDivergesSaysSoOnce) {
  const Outcome o =
      train(2, kGood + "--optim.lr 1e30 --optim.momentum 0 --schedule.name constant --train.steps 200");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
  EXPECT_THAT(o.text,
              testing::ContainsRegex("training diverged: steps '[0-9]+' to '[0-9]+' were all skipped"));
  EXPECT_THAT(o.text, testing::HasSubstr("lower optim.lr (now '1e+30')"));
}

}  // namespace
}  // namespace lockstep::e2e
