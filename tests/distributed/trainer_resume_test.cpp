// A run that was stopped or killed, however often, ends in the bits of one that was not.
#include <hdf5.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "trainer_driver.h"

namespace lockstep::e2e {
namespace {

using testing::HasSubstr;

// Seven steps an epoch. A constant learning rate: how far a run should go may then change under way.
const std::string kJob =
    " --data.train train.h5 --batch.micro 4 --batch.global 32 --log.every 1 --schedule.name constant "
    "--optim.lr 0.02 "
    "--model.dropout 0.3 --data.flip true --data.pad 2 --train.ema_decay 0.9";

class Resume : public TrainerTest {
 protected:
  Resume() { data("train.h5", 203); }

  std::string steps(int64_t n) const { return " --train.steps " + std::to_string(n); }
  std::string hash(const std::string& run) const {
    return json_at(folder_ / run / "summary.json", "/params_hash");
  }

  void expect_same_end(const std::string& run, const std::string& reference, int64_t step) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string mine = bytes_of(checkpoint_of(folder_ / run, step) / file);
      EXPECT_GT(mine.size(), 1000u) << file;
      EXPECT_TRUE(mine == bytes_of(checkpoint_of(folder_ / reference, step) / file)) << file << " of " << run;
    }
    for (const char* value : {"/params_hash", "/samples", "/steps", "/train_loss"})
      EXPECT_EQ(json_at(folder_ / run / "summary.json", value),
                json_at(folder_ / reference / "summary.json", value))
          << value;
  }

  void expect_each_step_once(const std::string& run, int64_t last) const {
    std::vector<int64_t> all(last);
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(logged_steps(folder_ / run, "train"), all);
  }
};

TEST_F(Resume, OnAnotherWorldFromTheMiddleOfAnEpoch) {
  // A schedule that depends on the whole length, and on where the run stands in it.
  const std::string job =
      kJob + " --schedule.name cosine --optim.name adamw --optim.clip_norm 0.5" + steps(20);
  trained(1, "--run.dir whole --checkpoint.every 7 --checkpoint.keep 9" + job);
  for (int ranks : {2, 8}) {
    const std::string run = std::to_string(ranks);
    fs::create_directories(folder_ / run / "checkpoints");
    fs::copy(checkpoint_of(folder_ / "whole", 7), checkpoint_of(folder_ / run, 7),
             fs::copy_options::recursive);
    const Outcome o = trained(ranks, "--resume auto --run.dir " + run + job);
    EXPECT_THAT(o.text, HasSubstr("going on from '" + run + "/checkpoints/step-00000007'"));
    EXPECT_EQ(count(o.text, "\nstep "), 13) << o.text;
    expect_same_end(run, "whole", 20);
  }
}

TEST_F(Resume, AcrossLayouts) {
  const std::string job = kJob + " --optim.name adamw" + " --checkpoint.keep 9";
  trained(1, "--run.dir whole" + job + steps(20));
  const struct {
    int ranks;
    std::string layout;
    int64_t until;
  } parts[] = {{1, " --replicas 4", 5}, {2, "", 9}, {2, " --replicas 2 --dp-sync root", 16}, {1, "", 20}};
  for (const auto& part : parts)
    trained(part.ranks, "--resume auto --run.dir parts" + job + part.layout + steps(part.until));
  expect_same_end("parts", "whole", 20);
  expect_each_step_once("parts", 20);
}

TEST_F(Resume, ThreeTimesWithinOneEpochOnFourWorlds) {
  trained(1, "--run.dir whole" + kJob + steps(20));
  trained(1, "--run.dir parts" + kJob + steps(2));
  trained(4, "--resume auto --run.dir parts" + kJob + steps(3));
  trained(8, "--resume auto --run.dir parts" + kJob + steps(5));
  trained(2, "--resume parts --run.dir parts" + kJob + steps(20));
  expect_same_end("parts", "whole", 20);
  expect_each_step_once("parts", 20);
}

TEST_F(Resume, OfAFinishedRunChangesNothing) {
  data("eval.h5", 20, "--eval");
  const std::string job =
      " --data.eval eval.h5 --checkpoint.best top1 --checkpoint.every 3" + kJob + steps(8);
  trained(1, "--run.dir run" + job);
  std::map<std::string, std::string> before;
  for (const std::string& name : listing()) before[name] = bytes_of(folder_ / name);
  for (int ranks : {1, 2}) trained(ranks, "--resume auto --run.dir run" + job);
  std::map<std::string, std::string> after;
  for (const std::string& name : listing()) after[name] = bytes_of(folder_ / name);
  EXPECT_THAT(after, testing::ContainerEq(before));
}

TEST_F(Resume, FromAnotherRunLeavesThatOneAlone) {
  trained(1, "--run.dir first" + kJob + steps(4));
  trained(1, "--run.dir whole" + kJob + steps(9));
  const std::string summary = bytes_of(folder_ / "first" / "summary.json");
  trained(2, "--resume first --run.dir second" + kJob + steps(9));
  EXPECT_EQ(hash("second"), hash("whole"));
  EXPECT_EQ(bytes_of(folder_ / "first" / "summary.json"), summary);
  EXPECT_EQ(newest_step(folder_ / "first"), 4);
  // The job's newest run, when none is named.
  trained(1, kJob + steps(4));
  const Outcome o = trained(1, "--resume auto" + kJob + steps(9));
  EXPECT_THAT(o.text, HasSubstr("going on from 'runs/cnn-0001/checkpoints/step-00000004'"));
  EXPECT_EQ(hash("runs/cnn-0001"), hash("whole"));
}

TEST_F(Resume, SaysWhatHasChangedInTheJobAndRefusesWhatMovesTheCursor) {
  trained(1, "--run.dir run" + kJob + steps(3));
  const Outcome same = trained(2, "--resume auto --run.dir run" + kJob + steps(3));
  EXPECT_EQ(count(same.text, "warning"), 0) << same.text;
  const std::string changed = "env LOCKSTEP_DEVICE_THREADS=2 " + trainer(1) + " --resume auto --run.dir run" +
                              kJob + steps(4) + " --optim.lr 0.01 --checkpoint.every 1";
  const Outcome o = run(changed);
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(
      o.text,
      HasSubstr(
          "warning: since the checkpoint this has changed, so the end may have other bits than that of one "
          "uninterrupted run\n  train.steps was '3' and is '4'\n  optim.lr was '0.02' and is '0.01'\n  "
          "device.threads was '1' and is '2'\n"));
  const Outcome refused =
      train(1, "--resume auto --run.dir run" + kJob + steps(9) + " --data.drop_last true");
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(
      refused.text,
      HasSubstr("belongs to another run: data.drop_last differs\n  it was 'false' then and is 'true' now"));
  const Outcome mean =
      train(1, "--resume auto --run.dir run" + kJob + steps(9) + " --data.mean 0.25 --data.std 0.5");
  EXPECT_EQ(mean.code, 2) << mean.text;
  EXPECT_THAT(mean.text, HasSubstr("belongs to another run: data.train.mean differs"));
  EXPECT_THAT(mean.text, HasSubstr("' then and is '0.25' now"));
}

// The same samples, stored in chunks, come in another order.
TEST_F(Resume, RefusesDataInAnotherOrder) {
  trained(1, "--run.dir run" + kJob + steps(3));
  data("chunked.h5", 203, "--compress");
  const Outcome o = train(2, "--resume auto --run.dir run" + kJob + steps(9) + " --data.train chunked.h5");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(
      o.text,
      HasSubstr(
          "belongs to another run: data.train.order differs\n  it was 'by row' then and is 'by chunks of "));
}

TEST_F(Resume, KeepsTheBestEvaluationWhereverTheRunStopped) {
  data("eval.h5", 60, "--eval");
  const std::string job =
      kJob +
      " --data.eval eval.h5 --train.eval_every_steps 2 --train.eval_every 0 --checkpoint.best loss "
      "--checkpoint.keep 1 --optim.lr 0.3 --optim.momentum 0.99";
  trained(1, "--run.dir whole" + job + steps(20));
  // The best by what the run itself has written down.
  std::istringstream lines(bytes_of(folder_ / "whole" / "metrics.jsonl"));
  double best = 1e30;
  int64_t best_step = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["type"] == "eval" && json["loss"] < best) best = json["loss"], best_step = json["step"];
  }
  ASSERT_GT(best_step, 0);
  ASSERT_LT(best_step, 20) << "this test needs a best that is not the last";
  std::set<std::string> kept{"step-00000020", checkpoint_of("", best_step).filename().string()};
  const auto checkpoints = [&](const std::string& run) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / run / "checkpoints"))
      names.insert(entry.path().filename().string());
    return names;
  };
  EXPECT_EQ(checkpoints("whole"), kept);
  for (int64_t stop : {best_step - 1, best_step, best_step + 1}) {
    const std::string run = "stopped" + std::to_string(stop);
    trained(2, "--run.dir " + run + job + steps(stop));
    trained(1, "--resume auto --run.dir " + run + job + steps(20));
    EXPECT_EQ(checkpoints(run), kept) << "stopped at " << stop;
  }
}

TEST_F(Resume, WithNothingLeftToDoKeepsLossAndEvaluation) {
  data("eval.h5", 20, "--eval");
  const std::string job = kJob + " --data.eval eval.h5" + steps(4);
  trained(1, "--run.dir run" + job);
  const std::string summary = bytes_of(folder_ / "run" / "summary.json");
  fs::remove(folder_ / "run" / "summary.json");
  const Outcome o = trained(2, "--resume auto --run.dir run" + job);
  EXPECT_EQ(count(o.text, "nan"), 0) << o.text;
  std::ofstream(folder_ / "before.json") << summary;
  for (const char* value : {"/train_loss", "/eval", "/params_hash", "/steps", "/samples"})
    EXPECT_EQ(json_at(folder_ / "run" / "summary.json", value), json_at(folder_ / "before.json", value))
        << value;
  // One that was stopped before its last evaluation makes it.
  trained(1, "--run.dir other" + kJob + steps(4));
  EXPECT_EQ(json_at(folder_ / "other" / "summary.json", "/eval"), "null");
  for (int again = 0; again < 2; ++again) {
    const Outcome resumed = trained(1, "--resume auto --run.dir other" + job);
    EXPECT_EQ(count(resumed.text, "\neval step"), again == 0 ? 1 : 0) << resumed.text;
    EXPECT_EQ(json_at(folder_ / "other" / "summary.json", "/eval"),
              json_at(folder_ / "before.json", "/eval"));
  }
  EXPECT_EQ(logged_steps(folder_ / "other", "eval"), std::vector<int64_t>{4});
}

TEST_F(Resume, OfARunThatIsStillGoingIsRefused) {
  Process process(folder_, trainer(2) + " --run.dir run" + kJob + steps(1000000) + " --checkpoint.every 1");
  ASSERT_TRUE(process.prints("\nstep       2/")) << process.text();
  const std::string holder = std::to_string(ranks_in(folder_).at(0).pid);
  fs::create_directory(folder_ / "elsewhere");
  for (const char* resume : {"--resume auto", "--resume ../run", ""}) {
    const Outcome o = Process(folder_ / "elsewhere", trainer(1) + " " + resume + kJob + steps(1000000) +
                                                         " --data.train ../train.h5 --run.dir ../run")
                          .wait();
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text, HasSubstr("run.dir '../run' is in use\n  process '" + holder + "' on '"));
  }
  process.signal(SIGUSR1);
  const Outcome stopped = process.wait();
  EXPECT_EQ(stopped.code, 3) << stopped.text;
  EXPECT_FALSE(fs::exists(folder_ / "run" / ".lock"));
}

TEST_F(Resume, TakesABatchThatWasWorkedOutFromTheCheckpoint) {
  const std::string job = " --data.train train.h5 --schedule.name constant --reduction fast --run.dir run";
  trained(1, job + steps(2));
  const Outcome o = trained(4, "--resume auto" + job + steps(4));
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/job/batch.global"), "\"128\"");
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/job/batch.micro"), "\"16\"");
  const Outcome three = train(3, "--resume auto" + job + steps(4));
  EXPECT_EQ(three.code, 2) << three.text;
  EXPECT_THAT(three.text, HasSubstr("batch.global '128' cannot be shared out on '3' devices"));
}

// What a log interval has seen before a stop counts in it afterwards.
TEST_F(Resume, InTheMiddleOfALogInterval) {
  const std::string job = kJob + " --log.every 4";
  trained(1, "--run.dir whole" + job + steps(18));
  trained(1, "--run.dir parts" + job + steps(3));
  trained(2, "--resume auto --run.dir parts" + job + steps(6));
  trained(1, "--resume auto --run.dir parts" + job + steps(18));
  expect_same_end("parts", "whole", 18);
  std::map<int64_t, double> losses[2];
  const char* runs[] = {"whole", "parts"};
  for (int i = 0; i < 2; ++i) {
    std::istringstream lines(bytes_of(folder_ / runs[i] / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["step"].get<int64_t>() % 4 == 0) losses[i][record["step"]] = record["loss"];
    }
  }
  EXPECT_EQ(losses[0].size(), 4u);
  EXPECT_THAT(losses[1], testing::ContainerEq(losses[0]));
}

TEST_F(Resume, FromAnEarlierCheckpointInTheSameDirectoryIsRefused) {
  trained(1, "--run.dir run --checkpoint.every 2" + kJob + steps(6));
  const std::string earlier = " --resume run/checkpoints/step-00000002" + kJob + steps(8);
  const Outcome o = train(2, "--run.dir run" + earlier);
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(
      o.text,
      HasSubstr("run.dir 'run' holds a later checkpoint than the one to go on from\n  'step-00000006' is of "
                "step '6'"));
  EXPECT_EQ(newest_step(folder_ / "run"), 6);
  trained(2, "--run.dir other" + earlier);
  EXPECT_EQ(newest_step(folder_ / "other"), 8);
}

TEST_F(Resume, WithDamagedCheckpointsAloneDoesNotStartAnew) {
  trained(1, "--run.dir run" + kJob + steps(3));
  const std::string metrics = bytes_of(folder_ / "run" / "metrics.jsonl");
  fs::resize_file(checkpoint_of(folder_ / "run", 3) / "model.safetensors", 100);
  const Outcome o = train(2, "--resume auto --run.dir run" + kJob + steps(5));
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(
      o.text,
      HasSubstr("no checkpoint to resume from in 'run/checkpoints'\n  all are damaged: 'step-00000003' ("));
  EXPECT_EQ(bytes_of(folder_ / "run" / "metrics.jsonl"), metrics);
}

TEST_F(Resume, OfDataWithOtherLabelsIsRefused) {
  trained(1, "--run.dir run" + kJob + steps(3));
  // The hash of the contents stays in the file as it was written.
  const hid_t file = H5Fopen((folder_ / "train.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t set = H5Dopen2(file, "/labels", H5P_DEFAULT);
  const std::vector<int> labels(203, 1);
  EXPECT_GE(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels.data()), 0);
  H5Dclose(set);
  H5Fclose(file);
  const Outcome o = train(1, "--resume auto --run.dir run" + kJob + steps(5));
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("belongs to another run: data.train.labels differs"));
}

TEST_F(Resume, AnEvaluationOfOtherDataIsMadeAnew) {
  data("eval.h5", 20, "--eval");
  data("other.h5", 31, "--eval");
  trained(1, "--run.dir run --data.eval eval.h5" + kJob + steps(3));
  const Outcome o = trained(1, "--resume auto --run.dir run --data.eval other.h5" + kJob + steps(3));
  EXPECT_THAT(o.text, HasSubstr("\n  data.eval was 'xxh3 "));
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/eval/count"), "31");
  EXPECT_EQ(newest_step(folder_ / "run"), 3);
}

TEST_F(Resume, ASignalDuringAnEvaluationDoesNotWaitForItsEnd) {
  data("eval.h5", 30000, "--eval");
  const std::string job = " --run.dir run --data.eval eval.h5" + kJob + steps(2);
  for (int ranks : {1, 2}) {
    Process process(folder_, trainer(ranks) + (ranks == 1 ? "" : " --resume auto") + job);
    ASSERT_TRUE(ranks == 1 ? process.prints("\nstep 2/2") : process.prints("\nmemory\n")) << process.text();
    process.signal(SIGUSR1);
    const Outcome o = process.wait();
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_EQ(count(o.text, "\neval step"), 0) << o.text;
  }
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/eval"), "null");
  trained(2, "--resume auto" + job);
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/eval/count"), "30000");
}

class StopSignal : public Resume, public testing::WithParamInterface<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Trainer, StopSignal,
                         testing::Values(std::pair{1, SIGTERM}, std::pair{1, SIGINT}, std::pair{1, SIGUSR1},
                                         std::pair{2, SIGUSR1}, std::pair{8, SIGUSR1}),
                         [](const auto& info) {
                           return "Ranks" + std::to_string(info.param.first) + "Signal" +
                                  std::to_string(info.param.second);
                         });

TEST_P(StopSignal, EndsWithAWholeCheckpointAndExitCode3AndTheRunGoesOn) {
  const auto [ranks, signal] = GetParam();
  Process process(folder_, trainer(ranks) + " --run.dir run" + kJob + steps(1000000));
  ASSERT_TRUE(process.prints("\nstep       3/")) << process.text();
  process.signal(signal);
  const Outcome stopped = process.wait();
  ASSERT_EQ(stopped.code, 3) << stopped.text;
  EXPECT_EQ(count(stopped.text, "stopped on request ("), 1) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr("go on with: --resume auto --run.dir run\n"));

  const int64_t step = newest_step(folder_ / "run");
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/steps"), std::to_string(step));
  const Outcome resumed = trained(2, "--resume auto --run.dir run" + kJob + steps(step + 4));
  EXPECT_EQ(count(resumed.text, "damaged"), 0) << resumed.text;
  EXPECT_EQ(count(resumed.text, "\nstep "), 4) << resumed.text;
  trained(1, "--run.dir whole" + kJob + steps(step + 4));
  expect_same_end("run", "whole", step + 4);
  expect_each_step_once("run", step + 4);
}

TEST_F(Resume, AfterKillsAtRandomMomentsOfARunThatSavesAtEachStep) {
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> milliseconds(0, 150);
  const std::string job = " --resume auto --run.dir run --checkpoint.every 1 --checkpoint.keep 2" + kJob;
  std::string moments = "killed after ms:";
  for (int ranks : {1, 2, 1, 1, 2, 1}) {
    const int wait = milliseconds(random);
    moments += " " + std::to_string(wait);
    Process process(folder_, trainer(ranks) + job + steps(1000000));
    ASSERT_TRUE(process.prints("\nstep ")) << process.text();
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    ASSERT_EQ(ranks_in(folder_).size(), static_cast<size_t>(ranks));
    for (const Rank& rank : ranks_in(folder_)) kill(rank.pid, SIGKILL);
    EXPECT_NE(process.wait().code, 0);
  }
  const int64_t end = std::max<int64_t>(newest_step(folder_ / "run"), 0) + 3;
  const Outcome last = trained(2, job + steps(end));
  EXPECT_EQ(count(last.text, "damaged"), 0) << last.text;
  trained(1, "--run.dir whole" + kJob + steps(end));
  SCOPED_TRACE(moments);
  expect_same_end("run", "whole", end);
  expect_each_step_once("run", end);
  for (const std::string& name : listing())
    for (const char* leftover : {".partial", ".trash", ".replaced"})
      EXPECT_EQ(count(name, leftover), 0) << name;
}

}  // namespace
}  // namespace lockstep::e2e
