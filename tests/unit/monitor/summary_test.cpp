#include "monitor/summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "unit/monitor/support.h"

namespace lockstep::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Summary example() {
  Summary s;
  s.job = {{"batch.micro", "16"}, {"data.train", "a \"b\".h5"}};
  s.git = "abc1234";
  s.ranks = 4;
  s.devices = 4;
  s.hosts = {"node1", "node2"};
  s.steps = 938;
  s.epochs = 2;
  s.samples = 120000;
  s.train_loss = 0.25;
  s.eval = EvaluationMetrics{.loss = 0.3, .top1 = 0.91, .top5 = 0.99, .count = 10000};
  s.params_hash = "00ff";
  s.step_ms_median = 13.5;
  s.step_ms_p95 = 15;
  s.time = {0.1, 0.2, 0.3, 0.1, 0.2, 0.1};
  s.peak_host_bytes = uint64_t{3} << 30;
  return s;
}

TEST(Summary, HasEveryNameThatScriptsRelyOn) {
  auto j = nlohmann::json::parse(summary_text(example()));
  std::vector<std::string> keys;
  for (auto& [key, value] : j.items()) keys.push_back(key);
  EXPECT_THAT(keys,
              UnorderedElementsAre("job", "git", "world", "steps", "epochs", "samples", "train_loss", "eval",
                                   "params_hash", "samples_per_second", "step_ms", "time", "peak_host_bytes",
                                   "peak_device_bytes", "skipped_steps", "resumed_from"));
  EXPECT_EQ(j["job"]["batch.micro"], "16");
  EXPECT_EQ(j["world"].dump(), R"({"devices":4,"hosts":["node1","node2"],"ranks":4,"replicas":1})");
  EXPECT_EQ(j["eval"].dump(), R"({"count":10000,"loss":0.3,"top1":0.91,"top5":0.99})");
  EXPECT_EQ(j["step_ms"].dump(), R"({"median":13.5,"p95":15.0})");
  EXPECT_EQ(j["time"].size(), 6u);
  EXPECT_EQ(j["time"]["exposed_comm"], 0.1);
  EXPECT_TRUE(j["resumed_from"].is_null());
}

TEST(Summary, WhatThereIsNoneOfIsNull) {
  Summary s = example();
  s.eval.reset();
  s.train_loss = std::nan("");
  s.resumed_from = "checkpoints/step-00000120";
  auto j = nlohmann::json::parse(summary_text(s));
  EXPECT_TRUE(j["eval"].is_null());
  EXPECT_TRUE(j["train_loss"].is_null());
  EXPECT_EQ(j["resumed_from"], "checkpoints/step-00000120");
}

class SummaryFile : public Scratch {};

TEST_F(SummaryFile, IsWrittenWholeAndReplacesAFormerOne) {
  const fs::path path = dir_ / "summary.json";
  write_summary(path, example());
  Summary s = example();
  s.steps = 1000;
  write_summary(path, s);
  EXPECT_EQ(read_text(path), summary_text(s));
  EXPECT_FALSE(fs::exists(dir_ / "summary.json.partial"));
}

TEST_F(SummaryFile, AFailureNamesTheFileAndLeavesNothing) {
  UserError e = error_of([&] { write_summary(dir_ / "none" / "summary.json", example()); });
  EXPECT_THAT(e.headline(), HasSubstr("none/summary.json'"));
  EXPECT_EQ(e.why(), "No such file or directory");
  fs::create_directory(dir_ / "taken");
  std::ofstream(dir_ / "taken" / "x") << "x";
  EXPECT_EQ(error_of([&] { write_summary(dir_ / "taken", example()); }).why(), "Is a directory");
  EXPECT_FALSE(fs::exists(dir_ / "taken.partial"));
}

}  // namespace
}  // namespace lockstep::monitor
