// Threaded data parallelism and the hybrid, as users start them.
#include <regex>
#include <thread>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class ReplicasTest : public Refusal {
 protected:
  ReplicasTest() { data("train.h5", 203); }
};

// The cores in the world table's row of a device.
std::string cores_of(const Outcome& o, const std::string& device) {
  std::smatch found;
  const std::regex row("\n +" + device + "  .* ([0-9,-]+) +[0-9]+\n");
  return std::regex_search(o.text, found, row) ? found[1].str() : "none: " + o.text;
}

TEST_F(ReplicasTest, AreSharedOutOverDisjointCoresAndShownOneByOne) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  const Outcome o = trained(1, kGood + "--replicas 2");
  const std::string first = cores_of(o, "0.0"), second = cores_of(o, "0.1");
  EXPECT_EQ(first[0], '0');
  EXPECT_THAT(second, testing::MatchesRegex("[1-9].*"));
  EXPECT_THAT(o.text, testing::Not(HasSubstr("take turns")));
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/world/replicas"), "2");
  EXPECT_EQ(json_at(folder_ / "run" / "summary.json", "/world/devices"), "2");
}

TEST_F(ReplicasTest, OnNamedDevicesAreBoundToThem) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  EXPECT_EQ(cores_of(trained(1, kGood + "--parallel.devices 1"), "0"), "1");
}

TEST_F(ReplicasTest, MoreThanCoresTakeTurnsAndSaySo) {
  const Outcome o = trained(1, kGood + "--replicas 8");
  EXPECT_THAT(o.text, ContainsRegex("'8' replicas share '[0-9]+' cores"));
}

TEST_F(ReplicasTest, ThatCannotBeAreRefused) {
  const auto refused = [this](const std::string& arguments, const std::vector<std::string>& said) {
    expect_refusal(trainer(1) + " " + kGood + arguments, said);
  };
  refused("--parallel.devices 0,0", {R"(parallel.devices '0,0' \(command line\) names device '0' twice)"});
  refused("--parallel.devices 0,1 --replicas 3",
          {R"(parallel.replicas '3' \(command line\))", "'3' replicas, '2' devices"});
  refused("--parallel.devices 0,977 --device.threads 1",
          {"parallel.devices names device '977', which rank '0'", "cores"});
  refused("--replicas 0", {"parallel.replicas", "at least 1"});
  refused("--replicas 3", {"'3' devices"});
  refused("--replicas 3 --batch.global 24", {"exact", "use '1', '2' devices"});
  refused("--dp-sync roots", {"parallel.dp_sync", "'root'"});
}

TEST_F(ReplicasTest, ShareOutShardsThatAreNoPowerOfTwo) {
  // 12 shards of 4: runs of three, then pairs.
  const std::string job = "--data.train train.h5 --batch.micro 4 --batch.global 48 --train.steps 9";
  trained(1, job + " --run.dir one");
  trained(1, job + " --replicas 4 --run.dir dp");
  trained(2, job + " --run.dir ddp");
  for (const char* run : {"dp", "ddp"})
    EXPECT_EQ(json_at(folder_ / run / "summary.json", "/params_hash"),
              json_at(folder_ / "one" / "summary.json", "/params_hash"))
        << run;
}

TEST_F(ReplicasTest, OfDifferentNumberOnTwoRanksAreRefused) {
  const std::string command = std::string(MPIEXEC) + " -np 1 " + TRAINER + " " + kGood +
                              "--replicas 2 : -np 1 " + TRAINER + " " + kGood + "--replicas 1";
  const Outcome o = run(command);
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("ranks disagree on parallel.replicas"));
  EXPECT_THAT(o.text, HasSubstr("'2'; rank '1': '1'"));
}

TEST_F(ReplicasTest, EvaluateAnySizeOfBatchAndSet) {
  data("eval.h5", 57, "--eval");
  trained(1, kGood);
  const std::string evaluate = " evaluate --resume run --data.eval eval.h5 --batch.micro ";
  const auto table = [&](const std::string& more) {
    const Outcome o = run(trainer(1) + evaluate + more);
    EXPECT_EQ(o.code, 0) << o.text;
    return o.text.substr(0, o.text.find("  seconds"));
  };
  for (const std::string micro : {"4", "57", "1000"})
    for (const std::string replicas : {"2", "3", "8"})
      EXPECT_EQ(table(micro + " --replicas " + replicas), table(micro)) << micro << " x " << replicas;
}

}  // namespace
}  // namespace lockstep::e2e
