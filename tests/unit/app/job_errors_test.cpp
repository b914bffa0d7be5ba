#include <sys/stat.h>

#include "unit/app/parse.h"

namespace lockstep::app {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(JobTest, UnknownOptionsAreNamedWithTheirPlaceAndTheNearestKey) {
  EXPECT_THAT(refusal({"--train.epoch", "3"}),
              HasSubstr("command line: unknown option 'train.epoch'; did you mean 'train.epochs'?"));
  const std::string job =
      file("job.ini", "[data]\ntrain = " + file("a.h5") + "\n[optim]\n\nlearning = 3\nseed = 1\n");
  const std::string text = refusal({"--job", job});
  EXPECT_THAT(text, HasSubstr(job + ":5: unknown option 'optim.learning'"));
  EXPECT_THAT(text, HasSubstr(job + ":6: unknown option 'optim.seed'; did you mean 'train.seed'?"));
  EXPECT_THAT(
      refusal({}, {"LOCKSTEP_TRAIN_STEP=3"}),
      HasSubstr("LOCKSTEP_TRAIN_STEP: this variable sets no option; did you mean 'LOCKSTEP_TRAIN_STEPS'?"));
  EXPECT_THAT(refusal({"--lr", "3"}), HasSubstr("did you mean 'optim.lr'?"));
  EXPECT_THAT(refusal({"--reductoin", "fast"}), HasSubstr("did you mean 'reduction'?"));
  EXPECT_THAT(refusal({"--utterly.different", "3"}), HasSubstr("see 'trainer --help'"));
}

TEST_F(JobTest, TheScriptsOwnVariableIsNoOption) {
  EXPECT_EQ(refusal({}, {"LOCKSTEP_TRAINER=/opt/trainer"}), "");
}

TEST_F(JobTest, UnknownCommandsAndModelsGetASuggestion) {
  EXPECT_THAT(refusal({"trian"}), HasSubstr("'trian' is no command; did you mean 'train'?"));
  EXPECT_THAT(refusal({"trian", "--help"}), HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(refusal({"--model.name", "resnet51"}), HasSubstr("did you mean 'resnet50'?"));
}

TEST_F(JobTest, ValuesThatDoNotParseAreQuoted) {
  EXPECT_THAT(refusal({"--train.epochs", "many"}), HasSubstr("train.epochs 'many' is not a whole number"));
  EXPECT_THAT(refusal({"--train.epochs", "1.5"}), HasSubstr("train.epochs '1.5' is not a whole number"));
  EXPECT_THAT(refusal({"--train.epochs", "12 "}), HasSubstr("train.epochs '12 ' is not a whole number"));
  EXPECT_THAT(refusal({"--optim.lr", "0,1"}), HasSubstr("optim.lr '0,1' is not a number"));
  EXPECT_THAT(refusal({"--optim.lr", "nan"}), HasSubstr("optim.lr 'nan' is not a finite number"));
  EXPECT_THAT(refusal({"--data.drop_last", "maybe"}),
              HasSubstr("data.drop_last 'maybe' is neither true nor false"));
  EXPECT_THAT(refusal({"--optim.name", "adam"}), HasSubstr("is none of sgd, adamw; did you mean 'adamw'?"));
  EXPECT_THAT(refusal({"--reduction", "quick"}),
              HasSubstr("parallel.reduction 'quick' is none of exact, fast"));
  EXPECT_THAT(refusal({"--run.signals", "TERM,KILL"}), HasSubstr("holds 'KILL', which is none of"));
  EXPECT_THAT(refusal({"--run.dir", "a#b"}), HasSubstr("run.dir 'a#b' holds a '#'"));
}

TEST_F(JobTest, RangesAreStated) {
  EXPECT_THAT(refusal({"--train.steps", "-3"}), HasSubstr("train.steps '-3' is out of range: at least 0"));
  EXPECT_THAT(refusal({"--train.seed", "-3"}), HasSubstr("train.seed '-3' is out of range: at least 0"));
  EXPECT_THAT(refusal({"--train.steps", "99999999999999999999"}), HasSubstr("is out of range"));
  EXPECT_THAT(refusal({"--model.dropout", "1"}), HasSubstr("out of range: at least 0, less than 1"));
  EXPECT_THAT(refusal({"--optim.eps", "0"}), HasSubstr("out of range: more than 0"));
  EXPECT_THAT(refusal({"--data.threads", "300"}), HasSubstr("out of range: at least 0, at most 256"));
  EXPECT_THAT(refusal({"--schedule.gamma", "0"}), HasSubstr("out of range: more than 0, at most 1"));
  EXPECT_THAT(refusal({"--schedule.milestones", "3,-1"}), HasSubstr("holds '-1', which is out of range"));
}

TEST_F(JobTest, MalformedCommandLinesAreNamed) {
  EXPECT_THAT(refusal({"--train.steps"}), HasSubstr("'--train.steps' has no value"));
  EXPECT_THAT(refusal({"--train.steps", "--train.epochs", "3"}), HasSubstr("'--train.steps' has no value"));
  EXPECT_THAT(refusal({"train", "5"}), HasSubstr("'5' belongs to no option"));
  EXPECT_THAT(refusal({"--train.steps", "5", "6"}), HasSubstr("'6' belongs to no option"));
}

TEST_F(JobTest, MissingAndUnreadableFilesAreNamed) {
  const std::string gone = (folder_ / "gone").string();
  EXPECT_THAT(refusal({"--job", gone}), HasSubstr("job file '" + gone + "' does not exist"));
  EXPECT_THAT(refusal({"--job", folder_.string()}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal({"--data.train", gone}),
              HasSubstr("data.train '" + gone + "' (command line) does not exist"));
  EXPECT_THAT(refusal({"--data.eval", folder_.string()}), HasSubstr("is a folder, not a file"));
  EXPECT_THAT(refusal({}, {"LOCKSTEP_MODEL_WEIGHTS=" + gone}),
              HasSubstr("model.weights '" + gone + "' (LOCKSTEP_MODEL_WEIGHTS) does not exist"));
  EXPECT_THAT(refusal({"--resume", gone}),
              HasSubstr("checkpoint.resume '" + gone + "' (command line) does not exist"));
  EXPECT_THAT(refusal({"--job", file("empty.ini")}), HasSubstr("data.train is not set"));
  EXPECT_THAT(refusal({"evaluate"}), HasSubstr("data.eval is not set"));
}

TEST_F(JobTest, BrokenLinesOfAJobFileAreNumbered) {
  const std::string job = file("job.ini", "[train]\nepochs 3\nsteps = 4\n[train\n");
  const std::string text = refusal({"--job", job});
  EXPECT_THAT(text, HasSubstr(job + ":2: 'epochs 3' is neither '[section]' nor 'key = value'"));
  EXPECT_THAT(text, HasSubstr(job + ":4: '[train' is neither"));
}

TEST_F(JobTest, SettingsThatContradictAreRefused) {
  EXPECT_THAT(refusal({"--train.epochs", "0"}), HasSubstr("training would never end"));
  EXPECT_THAT(
      refusal({"--optim.nesterov", "true", "--optim.momentum", "0"}),
      HasSubstr(
          "optim.nesterov 'true' (command line) needs a momentum, but optim.momentum '0' (command line)"));
  EXPECT_THAT(refusal({"--schedule.name", "multistep"}), HasSubstr("schedule.milestones is empty"));
  EXPECT_THAT(refusal({"--schedule.name", "multistep", "--schedule.milestones", "3,2"}), HasSubstr("ascend"));
  EXPECT_THAT(refusal({"--schedule.min_lr", "1", "--optim.lr", "0.1"}), HasSubstr("schedule.min_lr is '1'"));
  EXPECT_THAT(refusal({"--schedule.name", "cosine", "--train.epochs", "0", "--train.minutes", "5"}),
              HasSubstr("in a run of no known length"));
  EXPECT_THAT(
      refusal({"--batch.global", "100", "--batch.micro", "16"}),
      HasSubstr(
          "batch.global '100' (command line) is no multiple of batch.micro x batch.accumulation = '16'"));
  EXPECT_THAT(refusal({"--resume", folder_.string(), "--model.weights", file("w")}), HasSubstr("choose one"));
  EXPECT_THAT(
      refusal({"--job", file("b.ini", "[data]\ntrain=" + file("t.h5") + "\n[checkpoint]\nbest = top1\n")}),
      HasSubstr("checkpoint.best 'top1' (" + (folder_ / "b.ini").string() + ":4) needs evaluations"));
  EXPECT_THAT(refusal({"--data.random_resized_crop", "true"}), HasSubstr("needs data.size"));
  EXPECT_THAT(refusal({"--data.random_resized_crop", "true", "--data.size", "8", "--data.pad", "2"}),
              HasSubstr("both crop"));
  EXPECT_THAT(refusal({"--data.random_resized_crop", "true", "--data.size", "8", "--data.scale_max", "0.05"}),
              HasSubstr("data.scale_min '0.08' (default) is more than data.scale_max '0.05' (command line)"));
  EXPECT_THAT(refusal({"--data.mean", "0.5"}), HasSubstr("go together"));
  EXPECT_THAT(refusal({"evaluate"}), HasSubstr("'evaluate' needs parameters"));
  EXPECT_THAT(refusal({"evaluate", "--resume", "auto"}), Not(HasSubstr("'evaluate' needs parameters")));
}

TEST_F(JobTest, AllProblemsComeInOneError) {
  const std::string job = file("job.ini", "[train]\nepoch = 3\nsteps = x\nnonsense\n");
  const std::string text =
      refusal({"--job", job, "--optim.lr", "fast", "--data.eval", "gone.h5", "--train.steps"},
              {"LOCKSTEP_BATCH_MICRO=-1", "LOCKSTEP_NO=1"});
  EXPECT_THAT(text, HasSubstr("'9' problems"));
  for (const char* part :
       {":2: unknown", ":3: train.steps 'x'", ":4: 'nonsense'", "optim.lr 'fast'", "gone.h5' (command",
        "'--train.steps' has no value", "batch.micro '-1'", "LOCKSTEP_NO: ", "data.train is not set"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(JobTest, FilesThatAreNoneAreNotRead) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")})
    EXPECT_THAT(refusal({"--job", path}),
                HasSubstr("job file '" + path + "' cannot be read: it is no file of at most"));
  EXPECT_THAT(refusal({"--data.train", pipe}), HasSubstr("is a pipe, socket or device, not a file"));
}

TEST_F(JobTest, BytesThatATerminalWouldObeyAreShownAsNumbers) {
  std::ofstream(folder_ / "job.ini") << "\x1b[31mred\n" << std::string(5000, 'x') << "\n";
  const std::string text = refusal({"--job", (folder_ / "job.ini").string()});
  EXPECT_THAT(text, HasSubstr("'\\x1b[31mred' is neither"));
  EXPECT_LT(text.size(), 1000u);
  std::ofstream(folder_ / "job.ini") << "\xef\xbb\xbf[train]\nseed = 5\n";
  EXPECT_THAT(refusal({"--job", (folder_ / "job.ini").string()}), Not(HasSubstr("job.ini:")));
}

TEST_F(JobTest, AnEmptyValueUnsets) {
  const Invocation i = parse({"--train.epochs=", "--optim.name", "", "--train.seed", "7"}, {},
                             "[train]\nepochs = 9\nseed = 3\n");
  EXPECT_EQ(i.job.train.epochs, Job().train.epochs);
  EXPECT_EQ(i.origin.at("train.epochs"), "default");
  EXPECT_EQ(i.job.optim.name, "sgd");
  EXPECT_EQ(i.job.train.seed, 7u);
}

}  // namespace
}  // namespace lockstep::app
