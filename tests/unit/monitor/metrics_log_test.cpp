#include "monitor/metrics_log.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "unit/monitor/support.h"

namespace lockstep::monitor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MetricsLogTest : public Scratch {
 protected:
  fs::path path_ = dir_ / "metrics.jsonl";
  static StepMetrics train(int64_t step) { return {.step = step, .steps = 100, .loss = 0.5}; }
  static EvaluationMetrics eval(int64_t step) { return {.step = step, .top1 = 0.9, .count = 10}; }
  /// "train 10", one a line.
  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) {
      auto j = nlohmann::json::parse(line);
      lines.push_back(j["type"].get<std::string>() + " " + std::to_string(j["step"].get<int>()));
    }
    return lines;
  }
};

TEST_F(MetricsLogTest, EachLineIsOneObjectAndThereAtOnce) {
  MetricsLog log(path_, 0);
  StepMetrics m = train(10);
  m.time = {0.1, 0.2, 0.3, 0.1, 0.2, 0.1};
  m.gradient_norm = std::nan("");
  log.write(m);
  auto j = nlohmann::json::parse(read_text(path_));
  EXPECT_EQ(j["loss"], 0.5);
  EXPECT_EQ(j["time"]["exposed_comm"], 0.1);
  EXPECT_TRUE(j["gradient_norm"].is_null());
  log.write(eval(10));
  EXPECT_THAT(lines(), ElementsAre("train 10", "eval 10"));
}

TEST_F(MetricsLogTest, NoStepAppearsTwiceAfterAResume) {
  {
    MetricsLog log(path_, 0);
    for (int64_t step : {10, 20, 30, 40}) {
      log.write(train(step));
      if (step % 20 == 0) log.write(eval(step));
    }
  }
  MetricsLog log(path_, 20);
  EXPECT_THAT(lines(), ElementsAre("train 10", "train 20", "eval 20"));
  log.write(eval(20));
  for (int64_t step : {20, 30}) log.write(train(step));
  EXPECT_THAT(lines(), ElementsAre("train 10", "train 20", "eval 20", "train 30"));
}

TEST_F(MetricsLogTest, AResumeBetweenTwoLinesKeepsTheEarlierOne) {
  { MetricsLog(path_, 0).write(train(10)); }
  { MetricsLog(path_, 15).write(train(20)); }
  EXPECT_THAT(lines(), ElementsAre("train 10", "train 20"));
}

TEST_F(MetricsLogTest, AnEvaluationOfTheResumedStepThatWasNotWrittenIs) {
  { MetricsLog(path_, 0).write(train(10)); }
  { MetricsLog(path_, 10).write(eval(10)); }
  EXPECT_THAT(lines(), ElementsAre("train 10", "eval 10"));
}

TEST_F(MetricsLogTest, HalfALineIsCutOff) {
  { MetricsLog(path_, 0).write(train(10)); }
  for (const char* half : {"{\"type\":\"tr", "{\"type\":\"train\",\"step\":20}"}) {
    std::ofstream(path_, std::ios::app) << half;
    MetricsLog log(path_, 50);
    EXPECT_THAT(lines(), ElementsAre("train 10"));
  }
}

TEST_F(MetricsLogTest, ANewRunStartsEmpty) {
  { MetricsLog(path_, 0).write(train(10)); }
  MetricsLog log(path_, 0);
  EXPECT_EQ(read_text(path_), "");
}

TEST_F(MetricsLogTest, AFullDiskLeavesWholeLinesAndIsReportedOnce) {
  MetricsLog log(path_, 0);
  log.write(train(10));
  const std::string before = read_text(path_);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small{before.size() + 20, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  log.write(train(20));
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  auto failure = log.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(*failure, HasSubstr("metrics.jsonl'"));
  EXPECT_FALSE(log.take_failure());
  EXPECT_EQ(read_text(path_), before);
  log.write(train(30));
  EXPECT_THAT(lines(), ElementsAre("train 10", "train 30"));
}

TEST_F(MetricsLogTest, AFileThatCannotBeOpenedIsAUserError) {
  UserError e = error_of([&] { MetricsLog log(dir_ / "none" / "m.jsonl", 0); });
  EXPECT_THAT(e.headline(), HasSubstr("none/m.jsonl'"));
  EXPECT_EQ(e.why(), "No such file or directory");
}

}  // namespace
}  // namespace lockstep::monitor
