#include "app/job.h"

#include "app/check.h"
#include "app/options.h"
#include "unit/app/parse.h"

namespace lockstep::app {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(JobTest, LaterSourcesWinAndAreRemembered) {
  const std::string data = file("train.h5");
  const std::string job = file("job.ini",
                               "# a comment\n"
                               "[data]\ntrain = " +
                                   data +
                                   "\n\n"
                                   "[train]\nseed = 2   # of file\nepochs = 7\nsteps = 30\n");
  const std::string built_in = "[train]\nseed = 99\n";

  Invocation i = parse({}, {}, built_in);
  EXPECT_EQ(i.job.train.seed, 99u);
  EXPECT_EQ(i.origin["train.seed"], "built-in job:2");
  EXPECT_EQ(i.origin["train.minutes"], "default");

  i = parse({"--job", job}, {}, built_in);
  EXPECT_EQ(i.job.train.seed, 2u);
  EXPECT_EQ(i.origin["train.seed"], job + ":6");
  EXPECT_EQ(i.job_file, job);

  i = parse({"--job", job}, {"LOCKSTEP_TRAIN_SEED=3", "HOME=/", "LOCKSTEP_TRAIN_EPOCHS=8"});
  EXPECT_EQ(i.job.train.seed, 3u);
  EXPECT_EQ(i.origin["train.seed"], "LOCKSTEP_TRAIN_SEED");

  i = parse({"--train.seed=4", "--job=" + job}, {"LOCKSTEP_TRAIN_SEED=3", "LOCKSTEP_TRAIN_EPOCHS=8"});
  EXPECT_EQ(i.job.train.seed, 4u);
  EXPECT_EQ(i.origin["train.seed"], "command line");
  EXPECT_EQ(i.job.train.epochs, 8);
  EXPECT_EQ(i.job.train.steps, 30);
  EXPECT_EQ(i.job.data.train, data);
}

TEST_F(JobTest, EveryKindOfValueIsRead) {
  const std::string weights = file("w.safetensors");
  Invocation i = parse({"--model.name", "resnet50", "--model.weights", weights, "--model.dropout=0.25",
                        "--optim.nesterov", "yes", "--optim.lr", "1e-3", "--run.signals", "USR2, TERM",
                        "--schedule.name", "multistep", "--schedule.milestones", "30,60.5,90", "--train.seed",
                        "18446744073709551615"});
  EXPECT_EQ(i.command, "train");
  EXPECT_EQ(i.job.model.name, "resnet50");
  EXPECT_EQ(i.job.model.weights, weights);
  EXPECT_EQ(i.job.model.dropout, 0.25);
  EXPECT_TRUE(i.job.optim.nesterov);
  EXPECT_EQ(i.job.optim.lr, 1e-3);
  EXPECT_THAT(i.job.run.signals, testing::ElementsAre("USR2", "TERM"));
  EXPECT_THAT(i.job.schedule.milestones, testing::ElementsAre(30, 60.5, 90));
  EXPECT_EQ(i.job.train.seed, UINT64_MAX);
  EXPECT_FALSE(i.help);
}

TEST_F(JobTest, ShortFormsStandForTheirKeys) {
  const Invocation i =
      parse({"--reduction", "fast", "--resume=auto", "--device", "cpu", "--run.dir", folder_.string()});
  EXPECT_EQ(i.job.parallel.collective.reduction, comm::Reduction::fast);
  EXPECT_EQ(i.job.checkpoint.resume, "auto");
  EXPECT_EQ(i.job.device.name, "cpu");
  EXPECT_EQ(i.origin.at("parallel.reduction"), "command line");
}

TEST_F(JobTest, TheCommandIsTheFirstWord) {
  const std::string weights = file("w.safetensors");
  EXPECT_EQ(parse({}).command, "train");
  EXPECT_EQ(parse({"train", "--train.steps", "3"}).command, "train");
  EXPECT_EQ(parse({"evaluate", "--model.weights", weights, "--data.eval", weights}).command, "evaluate");
}

TEST_F(JobTest, AnEmptyValueUnsets) {
  const std::string data = file("eval.h5");
  const Words unset[] = {{"--data.eval", ""}, {"--data.eval="}};
  for (const Words& words : unset) EXPECT_EQ(parse(words, {"LOCKSTEP_DATA_EVAL=" + data}).job.data.eval, "");
  EXPECT_FALSE(parse({"--model.dropout="}, {"LOCKSTEP_MODEL_DROPOUT=0.5"}).job.model.dropout);
}

TEST_F(JobTest, InputPathsInAJobFileStartFromItsFolder) {
  const std::string data = file("data/train.h5");
  const std::string job = file("jobs/job.ini", "[data]\ntrain = ../data/train.h5\n[run]\ndir = runs/a\n");
  const Invocation i = parse({"--job", job});
  EXPECT_EQ(i.job.data.train, data);
  EXPECT_EQ(i.job.run.dir, "runs/a");
}

TEST_F(JobTest, StepsAloneAreTheLimit) {
  EXPECT_EQ(parse({"--train.steps", "20"}).job.train.epochs, 0);
  EXPECT_EQ(parse({"--train.steps", "20", "--train.epochs", "2"}).job.train.epochs, 2);
  EXPECT_GT(parse({"--train.minutes", "20"}).job.train.epochs, 0);
}

/// A text that the option takes and that is not its default.
std::string another_value(Option& option) {
  const std::string before = option.get();
  for (const char* candidate : {"0.5", "0.75", "2", "3", "true", "false", "fast", "adamw", "step", "steps",
                                "top1", "resnet18", "never", "root", "bf16", "cpu", "USR2", "1", "some text"})
    if (option.set(candidate).empty() && option.get() != before) return option.get();
  return before;
}

TEST_F(JobTest, ResolvedTextReadsBackToTheSameJob) {
  Job job;
  for (Option& option : options(job)) {
    const std::string before = option.get();
    EXPECT_NE(another_value(option), before) << option.key << " was not varied";
  }
  job.data.train = file("train set.h5");
  job.data.eval = file("eval=1.h5");
  job.model.weights = file("w.safetensors");
  job.checkpoint.resume = "auto";
  job.run.dir = "runs/one";
  job.parallel.devices = {3, 1};
  job.parallel.replicas = 2;
  job.parallel.dp_sync = "allreduce";  // compression needs it
  job.optim.lr = 0.1 + 0.2;
  job.schedule.milestones = {1.5, 1e6};
  job.schedule.min_lr = 1e-300;
  job.batch = {};
  job.transforms.pad = 0;
  job.train.seed = UINT64_MAX;
  const std::string text = to_ini(job);
  const Job again = parse({"--job", file("resolved.ini", text)}).job;
  EXPECT_EQ(to_ini(again), text);
  EXPECT_EQ(again.optim.lr, job.optim.lr);
  EXPECT_EQ(again.schedule.milestones, job.schedule.milestones);
  EXPECT_EQ(again.data.train, job.data.train);
  EXPECT_EQ(job_hash(again), job_hash(job));
}

TEST_F(JobTest, DefaultsReadBackToo) {
  Job job;
  job.data.train = file("train.h5");
  const std::string text = to_ini(job);
  EXPECT_EQ(to_ini(parse({"--job", file("job.ini", text)}).job), text);
}

TEST_F(JobTest, HashFollowsWhatChangesTheResultAlone) {
  const std::vector<std::string> local = {"data.train",       "data.eval",
                                          "data.threads",     "data.prefetch",
                                          "parallel.timeout", "run.dir",
                                          "run.signals",      "log.every",
                                          "log.color",        "device.name",
                                          "device.threads",   "parallel.devices",
                                          "verify.max_ulp",   "compare.memory_limit_mib"};
  const uint64_t base = job_hash(Job());
  Job job;
  for (Option& option : options(job)) {
    const std::string before = option.get();
    another_value(option);
    const bool is_local = std::ranges::count(local, option.key) == 1;
    EXPECT_EQ(job_hash(job) == base, is_local || option.get() == before) << option.key;
    ASSERT_EQ(option.set(before), "") << option.key;
    ASSERT_EQ(job_hash(job), base) << option.key;
  }
}

TEST_F(JobTest, SettingsListEveryOptionWithItsOrigin) {
  const Invocation i = parse({"--train.steps", "5"}, {"LOCKSTEP_LOG_EVERY=2"});
  Job job;
  const std::vector<Setting> all = settings(i);
  ASSERT_EQ(all.size(), options(job).size());
  const auto find = [&](const std::string& key) { return *std::ranges::find(all, key, &Setting::key); };
  EXPECT_EQ(find("train.steps").value, "5");
  EXPECT_EQ(find("train.steps").origin, "command line");
  EXPECT_EQ(find("log.every").origin, "LOCKSTEP_LOG_EVERY");
  EXPECT_EQ(find("train.epochs").origin, "because train.steps is set");
  EXPECT_EQ(find("optim.lr").origin, "default");
}

TEST_F(JobTest, SettingsWithoutEffectAreWarnedOf) {
  EXPECT_THAT(parse({}).warnings, IsEmpty());
  EXPECT_THAT(parse({"--optim.beta1", "0.8"}).warnings,
              Contains(HasSubstr("optim.beta1 '0.8' (command line) has no effect: optim.name is 'sgd'")));
  EXPECT_THAT(parse({"--optim.name", "adamw", "--optim.momentum", "0.8"}).warnings,
              Contains(HasSubstr("optim.momentum")));
  EXPECT_THAT(parse({"--schedule.name", "constant", "--schedule.gamma", "0.5"}).warnings,
              Contains(HasSubstr("schedule.gamma")));
  EXPECT_THAT(parse({"--train.steps=1", "--train.steps=2"}).warnings,
              Contains(HasSubstr("given twice; '2' counts")));
}

TEST_F(JobTest, HelpIsGroupedAndListsModelsAndCommands) {
  const std::string help = *parse({"--help"}).help;
  for (const char* text : {"usage: trainer [COMMAND]", "train ", "evaluate", "cnn", "resnet50", "\nmodel:",
                           "\ndevice:", "--train.epochs", "(=3)", "--reduction", "[at least 0, less than 1]"})
    EXPECT_THAT(help, HasSubstr(text));
  const std::string evaluate = *parse({"evaluate", "-h"}).help;
  EXPECT_THAT(evaluate, HasSubstr("usage: trainer evaluate"));
  EXPECT_THAT(evaluate, HasSubstr("--data.eval"));
  EXPECT_THAT(evaluate, Not(HasSubstr("--optim.lr")));
  EXPECT_TRUE(parse({"--help", "--job", "missing.ini"}).help) << "help comes before checks";
}

}  // namespace
}  // namespace lockstep::app
