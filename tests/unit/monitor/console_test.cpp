#include "monitor/console.h"

#include <cmath>

#include "unit/monitor/support.h"

namespace lockstep::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics example() {
  StepMetrics m;
  m.step = 120;
  m.steps = 1170;
  m.epoch = 0.1026;
  m.loss = 0.4312;
  m.lr = 0.05;
  m.gradient_norm = 1.84;
  m.samples_per_second = 9512;
  m.step_ms = 41.2;
  m.time = {0, 0.3, 0.6, 0.03, 0.07, 0};
  m.host_bytes = 1288490189;
  m.eta_seconds = 43;
  return m;
}

TEST(StepLine, IsPlainAndAligned) {
  EXPECT_EQ(step_line(example(), "img", false),
            "step  120/1170  epoch  0.10  loss 0.4312  lr  0.0500  gnorm  1.84    9,512 img/s    41.2 ms "
            "(data  0% comm  3%)  mem 1.2 GiB  eta 00:00:43");
}

TEST(StepLine, KeepsItsColumnsWhateverTheValues) {
  StepMetrics m = example();
  m.step = 5;
  m.epoch = 10.5;
  m.lr = 1.234e-5;
  m.gradient_norm = 12.3;
  m.samples_per_second = 95123.4;
  m.step_ms = 1234.56;
  m.time[static_cast<int>(Phase::data)] = 0.42;
  m.host_bytes = uint64_t{512} << 20;
  m.eta_seconds = 7200;
  EXPECT_EQ(step_line(m, "img", false),
            "step    5/1170  epoch 10.50  loss 0.4312  lr 1.2e-05  gnorm 12.30   95,123 img/s  1234.6 ms "
            "(data 42% comm  3%)  mem 512 MiB  eta 02:00:00");
}

TEST(StepLine, OfARunThatOnlyTimeEndsHasNoTotal) {
  StepMetrics m = example();
  m.steps = 0;
  EXPECT_THAT(step_line(m, "img", false), testing::StartsWith("step    120  epoch  0.10  loss"));
}

TEST(StepLine, ColourChangesNoCharacter) {
  std::string colored = step_line(example(), "img", true), plain;
  EXPECT_THAT(colored, HasSubstr("\033[1m0.4312\033[0m"));
  for (size_t i = 0; i < colored.size(); ++i)
    if (colored[i] == '\033')
      i = colored.find('m', i);
    else
      plain += colored[i];
  EXPECT_EQ(plain, step_line(example(), "img", false));
}

TEST(StepLine, ShowsWhatNeedsAttention) {
  StepMetrics m = example();
  EXPECT_THAT(step_line(m, "img", false), Not(HasSubstr("skipped")));
  m.skipped_steps = 3;
  EXPECT_THAT(step_line(m, "img", false), HasSubstr("eta 00:00:43  skipped 3"));
  m.loss = std::nan("");
  EXPECT_THAT(step_line(m, "img", true), HasSubstr("\033[31m   nan\033[0m"));
  m.time[static_cast<int>(Phase::exposed_comm)] = 0.25;
  EXPECT_THAT(step_line(m, "img", true), HasSubstr("\033[33mcomm 25%\033[0m"));
}

TEST(StepLine, MemoryIsTheDevicesWhereItHasItsOwn) {
  StepMetrics m = example();
  m.device_bytes = uint64_t{30} << 30;
  EXPECT_THAT(step_line(m, "img", false), HasSubstr("mem  30 GiB"));
}

TEST(EvaluationLine, GivesPercentAndTheExactCount) {
  EvaluationMetrics m{.step = 469,
                      .epoch = 1,
                      .loss = 0.2931,
                      .top1 = 0.89374,
                      .top5 = 0.998,
                      .count = 10000,
                      .seconds = 2.345};
  EXPECT_EQ(evaluation_line(m, false),
            "eval step 469  epoch 1.00  top1 89.37%  top5 99.80%  loss 0.2931  10,000 samples in 2.3 s");
}

TEST(UseColor, FollowsTerminalAndNoColor) {
  EXPECT_TRUE(use_color(ColorMode::automatic, true, nullptr, "xterm"));
  EXPECT_TRUE(use_color(ColorMode::automatic, true, "", nullptr));
  EXPECT_FALSE(use_color(ColorMode::automatic, true, "1", "xterm"));
  EXPECT_FALSE(use_color(ColorMode::automatic, true, nullptr, "dumb"));
  EXPECT_FALSE(use_color(ColorMode::automatic, false, nullptr, "xterm"));
  EXPECT_TRUE(use_color(ColorMode::always, false, "1", "dumb"));
  EXPECT_FALSE(use_color(ColorMode::never, true, nullptr, "xterm"));
}

TEST(Table, AlignsTextLeftAndNumbersRight) {
  EXPECT_EQ(table("title", {"name", "n"}, {{"a", "1"}, {"long name", "1,234"}}, false),
            "title\n"
            "  name           n\n"
            "  a              1\n"
            "  long name  1,234\n");
}

TEST(Table, LeavesNoBlanksAtTheEndsOfLines) {
  EXPECT_EQ(table("t", {"a", "b"}, {{"x", ""}, {"", ""}}, false), "t\n  a  b\n  x\n\n");
  EXPECT_EQ(table("t", {}, {}, false), "t\n");
}

TEST(KeyValues, AlignsValues) {
  EXPECT_EQ(key_values("t", {{"a", "1"}, {"long", "x y"}}, false), "t\n  a     1\n  long  x y\n");
}

Header small_header() {
  Header h;
  h.job = {{"model.name", "cnn", "default"}, {"optim.lr", "0.1", "job.ini:3"}};
  h.world = {{0, "node1", "cpu", "0-7", 8}, {1, "node2", "cpu", "0-7", 8}};
  h.model = "cnn";
  h.parameters = 1234567;
  h.parameter_bytes = 4 * 1234567;
  h.micro_batch = 16;
  h.global_batch = 128;
  h.accumulation = 4;
  h.shards = 8;
  h.samples = 60000;
  h.steps_per_epoch = 469;
  h.steps = 938;
  h.memory = {{"parameters", 4 << 20}, {"arena", 12 << 20}};
  return h;
}

TEST(Header, ShowsJobWorldModelBatchAndMemory) {
  EXPECT_EQ(header(small_header(), false),
            "job\n"
            "  option      value  from\n"
            "  model.name  cnn    default\n"
            "  optim.lr    0.1    job.ini:3\n"
            "world\n"
            "  rank  host   device  cores  threads\n"
            "     0  node1  cpu       0-7        8\n"
            "     1  node2  cpu       0-7        8\n"
            "model\n"
            "  name        cnn\n"
            "  parameters  1,234,567 (4.7 MiB)\n"
            "batch\n"
            "  micro         16\n"
            "  global        128 (8 shards)\n"
            "  accumulation  4\n"
            "  epoch         60,000 samples, 469 steps\n"
            "  run           938 steps\n"
            "memory\n"
            "  parameters  4.0 MiB\n"
            "  arena       12 MiB\n"
            "  together    16 MiB\n");
}

TEST(Header, OfALargeWorldShowsFirstAndLastRanks) {
  Header h = small_header();
  h.minutes = 1.5;
  EXPECT_THAT(header(h, false), HasSubstr("  run           938 steps, at most 1.5 min\n"));
  h.steps = 0;
  EXPECT_THAT(header(h, false), HasSubstr("  run           1.5 min\n"));
  h.world.clear();
  for (int rank = 0; rank < 64; ++rank) h.world.push_back({rank, "n", "cpu", "0", 1});
  std::string text = header(h, false);
  EXPECT_THAT(text, HasSubstr("14    n        cpu"));
  EXPECT_THAT(text, HasSubstr("48 more"));
  EXPECT_THAT(text, HasSubstr("63    n        cpu"));
  EXPECT_THAT(text, Not(HasSubstr("15    n")));
  h.world.resize(16);
  EXPECT_THAT(header(h, false), Not(HasSubstr("more")));
}

TEST(FinalBlock, SaysWhatCameOutAndWhereItIs) {
  Summary s;
  s.steps = 938;
  s.epochs = 2;
  s.samples = 120000;
  s.train_loss = 0.25;
  s.eval = EvaluationMetrics{.loss = 0.3, .top1 = 0.91, .top5 = 0.99, .count = 10000};
  s.params_hash = "00ff";
  s.samples_per_second = 9512;
  s.step_ms_median = 13.4;
  s.step_ms_p95 = 15;
  s.time = {0, 0.3, 0.6, 0.03, 0.07, 0};
  s.peak_host_bytes = 1 << 30;
  EXPECT_EQ(final_block(s, {{"summary", "runs/x-0001/summary.json"}}, false),
            "done\n"
            "  trained      938 steps, 2.00 epochs, 120,000 samples\n"
            "  train loss   0.2500\n"
            "  evaluation   top1 91.00%  top5 99.00%  loss 0.3000  10,000 samples\n"
            "  speed        9,512 samples/s  step 13.4 ms median, 15.0 ms p95\n"
            "  time         data 0%  forward 30%  backward 60%  exposed_comm 3%  optimizer 7%  other 0%\n"
            "  peak memory  1.0 GiB\n"
            "  parameters   xxh3 00ff\n"
            "written\n"
            "  summary  runs/x-0001/summary.json\n");
  s.resumed_from = "c/step-00000120";
  s.skipped_steps = 2;
  s.eval.reset();
  std::string text = final_block(s, {}, false);
  EXPECT_THAT(text, HasSubstr("resumed from  c/step-00000120\n"));
  EXPECT_THAT(text, HasSubstr("skipped       2 steps\n"));
  EXPECT_THAT(text, Not(HasSubstr("evaluation")));
}

TEST(Warning, IsMarked) { EXPECT_EQ(warning("a\n  b", false), "warning: a\n  b"); }

class ConsoleTest : public Scratch {};

TEST_F(ConsoleTest, EndsLinesOnceAndIsPlainInAFile) {
  const fs::path path = dir_ / "out";
  std::FILE* file = std::fopen(path.c_str(), "w");
  Console console(file);
  EXPECT_FALSE(console.color());
  console.print("line");
  console.print("block\n");
  EXPECT_EQ(read_text(path), "line\nblock\n");
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep::monitor
