// What is thrown anywhere ends all ranks in seconds, its message first and alone.
#include <chrono>
#include <cmath>
#include <regex>
#include <thread>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Layout {
  const char* name;
  int ranks, replicas;
};
constexpr Layout kLayouts[] = {{"dp", 1, 4}, {"ddp", 4, 1}, {"hybrid", 2, 2}};

struct Point {
  const char* name;
  int passage;  ///< past the first steps
  const char* kind;
  int code;
};
constexpr Point kPoints[] = {
    {"setup", 1, "user", 2},         {"loading", 9, "user", 2},           {"forward", 9, "internal", 1},
    {"backward", 20, "internal", 1}, {"communication", 20, "cluster", 4}, {"evaluation", 3, "internal", 1}};

// From the throw to the end of the last process. It takes a tenth of that on a machine with a core for each
// device; this one has fewer.
constexpr double kSeconds = 5;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class FaultTest : public TrainerTest {
 protected:
  FaultTest() { data("train.h5", 203); }

  /// Runs a job that would never end, and expects that the fault ends it.
  Outcome expect_end(const Layout& layout, const std::string& faults, const std::string& arguments,
                     int code) const {
    SCOPED_TRACE(faults);
    const std::string command = failing_trainer(layout.ranks, faults) + " " + kGood +
                                "--train.steps 1000000 --schedule.name constant --replicas " +
                                std::to_string(layout.replicas) + " " + arguments;
    Process process(folder_, command);
    const Outcome o = process.wait();
    while (!ranks_in(folder_).empty() && now() - fault_time() < 2 * kSeconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const double seconds = now() - fault_time();
    EXPECT_LT(seconds, kSeconds) << o.text;
    RecordProperty("seconds_to_end", std::to_string(seconds));
    EXPECT_EQ(ranks_in(folder_).size(), 0u);
    EXPECT_EQ(o.code, code) << o.text;
    EXPECT_EQ(count("\n" + o.text, "\nerror: "), 1) << o.text;
    EXPECT_EQ(count(o.text, "abandoned"), 0) << o.text;
    return o;
  }

 private:
  /// Long ago when there was none.
  double fault_time() const { return std::atof(bytes_of(folder_ / "fault_time").c_str()); }
};

std::string at(const Point& point, int device) {
  return std::string("TRAINER_FAULT='") + point.name + " " + std::to_string(device) + " " +
         std::to_string(point.passage) + " " + point.kind + "'";
}

class Faults : public FaultTest, public testing::WithParamInterface<std::tuple<Layout, Point>> {};

TEST_P(Faults, EndAllRanksWithTheirMessage) {
  const auto& [layout, point] = GetParam();
  for (int device : {0, 3}) {
    const std::string evaluation =
        point.name == std::string("evaluation") ? "--data.eval train.h5 --train.eval_every_steps 1 " : "";
    const Outcome o = expect_end(layout, at(point, device),
                                 evaluation + "--run.dir run" + std::to_string(device), point.code);
    const std::string rank = layout.ranks == 1 ? "" : "rank '[0-9]+' on '[^']+': ",
                      bug = point.code == 1 ? "internal error: " : "";
    EXPECT_THAT(o.text, testing::ContainsRegex("error: " + rank + bug + "a fault in " + point.name +
                                               " on device " + std::to_string(device)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Combine(testing::ValuesIn(kLayouts), testing::ValuesIn(kPoints)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param).name;
                         });

// The others wait already when the device that failed, still in backward, learns of it.
TEST_F(FaultTest, OfCommunicationIsToldThoughItsConsequencesAreNoticedFirst) {
  for (const Layout& layout : kLayouts) {
    if (layout.replicas == 1) continue;
    for (int device : {0, 3}) {
      const std::string victim = std::to_string(device), which = layout.name + victim;
      const Outcome o = expect_end(
          layout,
          "TRAINER_FAULT='communication " + victim + " 1 cluster' TRAINER_SLOW='backward " + victim + " 20'",
          "--run.dir " + which, 4);
      EXPECT_THAT(o.text, HasSubstr("a fault in communication on device " + victim));
    }
  }
}

// A step of many shards is not finished first.
TEST_F(FaultTest, StopsTheOtherReplicasAtTheirNextShard) {
  for (const std::string point : {"forward", "evaluation"}) {
    const Outcome o = expect_end(
        {"dp", 1, 2}, "TRAINER_FAULT='" + point + " 1 1 internal' TRAINER_SLOW='" + point + " 0 600'",
        "--batch.global 128 --data.eval train.h5 --train.eval_every_steps 1 --run.dir " + point, 1);
    EXPECT_THAT(o.text, HasSubstr("a fault in " + point + " on device 1"));
  }
}

// The rank that was stopped is told, not the replica that waited for it.
TEST_F(FaultTest, OfAStoppedRankIsToldByName) {
  for (size_t victim : {0, 1}) {
    Process process(folder_, trainer(2) + " " + kGood +
                                 "--train.steps 1000000 --schedule.name constant --log.every 1 --replicas 2 "
                                 "--parallel.timeout 2 --run.dir stopped" +
                                 std::to_string(victim));
    ASSERT_TRUE(process.prints("\nstep       3/")) << process.text();
    const std::vector<Rank> ranks = ranks_in(folder_);
    ASSERT_EQ(ranks.size(), 2u);
    kill(ranks[victim].pid, SIGSTOP);
    const Outcome o = process.wait(40);
    EXPECT_EQ(o.code, 4) << o.text;
    EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
    EXPECT_THAT(o.text, testing::ContainsRegex("rank '" + std::to_string(victim) +
                                               "' on '[^']+' does not answer: dead, stopped or cut off"));
    EXPECT_EQ(ranks_in(folder_).size(), 0u);
  }
}

}  // namespace
}  // namespace lockstep::e2e
