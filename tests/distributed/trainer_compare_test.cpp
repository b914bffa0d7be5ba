// `trainer compare`: every layout of the launch in one table and one file.
#include <fstream>
#include <nlohmann/json.hpp>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCompare =
    " compare --data.train train.h5 --batch.micro 4 --batch.global 32 --train.steps 3 "
    "--compare.memory_limit_mib "
    "64 ";

class Compare : public Refusal {
 protected:
  Compare() { data("train.h5", 203); }
  /// Threads that wait give way: the machine has other work.
  Outcome compare(int ranks, const std::string& arguments) const {
    return run("env OMP_WAIT_POLICY=passive " + trainer(ranks) + kCompare + arguments);
  }
  json compared(int ranks, const std::string& arguments = "", const fs::path& file = "compare.json") const {
    fs::remove(folder_ / file);
    const Outcome o = compare(ranks, arguments);
    EXPECT_EQ(o.code, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr("written to '" + file.string() + "'"));
    return json::parse(bytes_of(folder_ / file), nullptr, false);
  }
};

std::vector<std::string> layouts(const json& comparison) {
  std::vector<std::string> names;
  for (const json& row : comparison["rows"])
    if (row["layout"] != "single, all cores" && row["amp"] == "off")  // the former hangs on the machine
      names.push_back(row["layout"].get<std::string>() + " " + row["ranks"].dump() + "x" +
                      row["replicas"].dump());
  return names;
}

json row(const json& comparison, const std::string& layout, const std::string& amp = "off") {
  for (const json& r : comparison["rows"])
    if (r["layout"] == layout && r["amp"] == amp) return r;
  ADD_FAILURE() << "no row of " << layout;
  return {};
}

TEST_F(Compare, HasARowForEveryLayoutOfTheLaunch) {
  EXPECT_THAT(layouts(compared(1, "--replicas 2")),
              ElementsAre("single 1x1", "DP root 1x2", "DP allreduce 1x2"));
  EXPECT_THAT(layouts(compared(2)), ElementsAre("single 1x1", "DP root 1x2", "DP allreduce 1x2", "DDP 2x1"));
  EXPECT_THAT(layouts(compared(2, "--replicas 2")),
              ElementsAre("single 1x1", "DP root 1x4", "DP allreduce 1x4", "DDP 2x1", "hybrid 2x2"));
  const Outcome alone = compare(1, "");
  for (const char* layout : {"single", "DP root", "DP allreduce"})
    EXPECT_THAT(alone.text, ContainsRegex("\n +" + std::string(layout) + " +off +1 x [0-9]+ "));
}

TEST_F(Compare, WritesCompleteRows) {
  const json comparison = compared(2, "--replicas 2 --run.dir run", "run/compare.json");
  ASSERT_TRUE(comparison.is_object());
  EXPECT_EQ(comparison["devices"], 4);
  EXPECT_EQ(comparison["global_batch"], 32);
  EXPECT_EQ(comparison["memory_limit_bytes"], 64 << 20);
  EXPECT_EQ(comparison["job"]["batch.micro"], "4");
  for (const json& r : comparison["rows"]) {
    SCOPED_TRACE(r.dump());
    double sum = 0;
    for (const char* phase : {"data", "forward", "backward", "exposed_comm", "optimizer", "other"})
      sum += r["time"][phase].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_EQ(r["time"].size(), 6u);
    EXPECT_GT(r["samples_per_second"], 0);
    EXPECT_GT(r["speed_up"], 0);
    EXPECT_LE(r["speed_up_min"], r["speed_up"]);
    EXPECT_GE(r["speed_up_max"], r["speed_up"]);
    EXPECT_GT(r["planned_bytes_device_0"], 0);
    EXPECT_EQ(r["planned_bytes_other_devices"].is_null(), r["devices"] == 1);
    EXPECT_GT(r["peak_host_bytes"], r["planned_bytes_device_0"].get<int64_t>() / 2);
    EXPECT_GT(r["utilisation"], 0);
    EXPECT_LE(r["utilisation"], 1.05);
    EXPECT_EQ(r["devices"], r["ranks"].get<int>() * r["replicas"].get<int>());
  }
  EXPECT_EQ(row(comparison, "single")["speed_up"], 1);
  // Only device 0 keeps the moments.
  const json root = row(comparison, "DP root"), all = row(comparison, "DP allreduce");
  EXPECT_LT(root["planned_bytes_other_devices"], root["planned_bytes_device_0"]);
  EXPECT_EQ(all["planned_bytes_other_devices"], all["planned_bytes_device_0"]);
  EXPECT_EQ(root["planned_bytes_device_0"], all["planned_bytes_device_0"]);
}

TEST_F(Compare, MeasuresEveryLayoutInFullAndHalfPrecision) {
  for (const auto& [arguments, half] : {std::pair{"--replicas 2", "bf16"},
                                        {"--replicas 2 --amp.mode bf16", "bf16"},
                                        {"--replicas 2 --amp.mode fp16", "fp16"}}) {
    SCOPED_TRACE(arguments);
    const json comparison = compared(1, arguments);
    for (const char* layout : {"single", "DP root", "DP allreduce"}) {
      const json full = row(comparison, layout), mixed = row(comparison, layout, half);
      EXPECT_GT(mixed["samples_per_second"], 0);
      // Activations shrink, weights gain half copies.
      EXPECT_NE(mixed["planned_bytes_device_0"], full["planned_bytes_device_0"]);
    }
    for (const json& r : comparison["rows"]) EXPECT_THAT(r["amp"], testing::AnyOf("off", half));
  }
  EXPECT_THAT(compare(1, "--replicas 2 --amp.mode fp16").text, HasSubstr("fp16 is emulated"));
}

TEST_F(Compare, ReplacesItsOwnReportAndNothingElse) {
  ASSERT_EQ(compare(1, "--replicas 2 --run.dir run").code, 0);
  const std::string first = bytes_of(folder_ / "run" / "compare.json");
  ASSERT_EQ(compare(1, "--replicas 2 --run.dir run").code, 0);
  EXPECT_NE(bytes_of(folder_ / "run" / "compare.json"), first);
  EXPECT_EQ(listing(), (std::set<std::string>{"train.h5", "run", "run/compare.json"}));
}

// What is said of the largest micro-batch is what training with it, and with the next, would plan.
TEST_F(Compare, FindsTheLargestMicroBatchThatFits) {
  const auto with = [&](int64_t micro, int64_t mib) {
    return row(compared(1, "--replicas 2 --train.steps 1 --batch.micro " + std::to_string(micro) +
                               " --batch.global " + std::to_string(2 * micro) +
                               " --compare.memory_limit_mib " + std::to_string(mib)),
               "DP allreduce");
  };
  const int64_t mib = (with(16, 64)["planned_bytes_device_0"].get<int64_t>() >> 20) + 1, limit = mib << 20;
  const int64_t largest = with(4, mib)["largest_micro_batch"];
  ASSERT_GE(largest, 16);
  ASSERT_LE(largest, 64);
  EXPECT_LE(with(largest, mib)["planned_bytes_device_0"], limit);
  EXPECT_GT(with(2 * largest, mib)["planned_bytes_device_0"], limit);
  EXPECT_EQ(with(4, 1)["largest_micro_batch"], 0);
  EXPECT_EQ(with(4, 1 << 20)["largest_micro_batch"], 128);  // of 203 samples
}

TEST_F(Compare, RefusesWhatItCannotMeasure) {
  const auto refused = [&](int ranks, const std::string& arguments, const std::vector<std::string>& said) {
    expect_refusal(trainer(ranks) + kCompare + arguments, said);
  };
  refused(3, "--batch.global 24", {"exact", "'3' devices", "use '1', '2' devices"});
  refused(1, "--batch.global 4", {"nothing to compare"});
  refused(1, "--compare.memory_limit_gib 3",
          {"unknown option 'compare.memory_limit_gib'; did you mean 'compare.memory_limit_mib'"});
  refused(1, "--compare.memory_limit_mib lots", {"compare.memory_limit_mib 'lots'"});
  refused(1, "--replicas 16", {"'16' devices", "these would do"});
}

TEST_F(Compare, SaysWhereItCouldNotWrite) {
  std::ofstream(folder_ / "file") << "in the way";
  const Outcome o = compare(1, "--run.dir file/run");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("run.dir 'file/run' cannot be made"));
  EXPECT_THAT(o.text, HasSubstr("DP allreduce"));  // the table comes first
}

}  // namespace
}  // namespace lockstep::e2e
