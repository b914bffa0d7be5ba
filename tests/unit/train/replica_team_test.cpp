// Replicas of one rank that train together: the same bits as one alone, nothing allocated in a steady step,
// and an end for all when one fails.
#include "train/replica_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <stdexcept>

#include "allocations.h"
#include "data/generate.h"
#include "device/cpu/cpu_device.h"
#include "models/registry.h"
#include "train/agreement.h"
#include "train/evaluate.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMicro = 4, kShards = 4, kGlobal = kMicro * kShards;

/// A generated set in a file that lives as long.
class Set {
 public:
  explicit Set(int64_t samples)
      : path_(fs::temp_directory_path() / ("lockstep_team_" + std::to_string(getpid()) + ".h5")) {
    data::generate_file(path_, {.num_samples = samples, .classes = 4, .size = 12}, "a test",
                        data::IfExists::replace);
    set_.emplace(path_.string());
  }
  ~Set() { fs::remove(path_); }
  const data::ClassificationSet& operator*() const { return *set_; }

 private:
  const fs::path path_;
  std::optional<data::ClassificationSet> set_;
};

/// Trains the small CNN with dropout, accumulating where it has fewer replicas than the step has shards.
class Training {
 public:
  Training(int64_t samples, int replicas, bool root)
      : set_(samples), plan_{kMicro, kGlobal, kShards / replicas, kShards}, team_(0, replicas) {
    const models::ModelOptions model = models::resolve(
        {.name = "cnn", .classes = 4, .channels = 1, .height = 12, .width = 12, .dropout = 0.5});
    const data::Order order = data::make_order(*set_, kGlobal, 1, true);
    const data::Order eval_order = data::make_order(*set_, kMicro * replicas, 1, false);
    team_.run([&](Member& m) {
      m.device = device::make_cpu_device(1);
      m.replica = std::make_unique<Replica>(
          *m.device, [model](int64_t n) { return models::build(model, n); }, kMicro);
      m.train = std::make_unique<data::Loader>(
          *set_, order, data::TransformOptions{.pad = 1, .flip = true},
          data::LoaderOptions{.micro_batch = kMicro,
                              .shards_per_step = kShards,
                              .first_shard = m.device_index * plan_.accumulation,
                              .num_shards = plan_.accumulation});
      m.eval = std::make_unique<data::Loader>(*set_, eval_order, data::TransformOptions{},
                                              evaluation_share(kMicro, m.device_index, replicas, 1, 2));
      for (const device::Mode mode : {device::Mode::train, device::Mode::evaluate})
        for (const int64_t size : {kMicro, samples % kMicro})
          if (size > 0) m.replica->program(mode, size);
      if (!root || m.device_index == 0)
        m.optimizer = std::make_unique<Optimizer>(*m.device, m.store(), OptimOptions{.lr = 0.05}, 0);
      m.store().initialize(1);
      m.store().refresh_copies();
    });
    auto collectives = comm::make_collectives(world_, replicas, {.timeout = 60});
    for (int i = 0; i < replicas; ++i) team_[i].collective = std::move(collectives[i]);
    team_.run([&](Member& m) {
      m.step = std::make_unique<Step>(
          *m.replica, *m.collective, m.optimizer.get(),
          StepOptions{.plan = plan_, .clip_norm = 1, .bucket_mib = 0.002, .root = root});
      m.train->seek({});
    });
  }

  void step() {
    team_.run(step_);
    ++steps_;
  }
  Evaluation evaluate() { return *train::evaluate(team_, world_); }
  ReplicaTeam& team() { return team_; }
  void expect_agreement() { EXPECT_NO_THROW(check_agreement(team_, world_, steps_)); }
  std::vector<float> state() {
    device::Store& store = team_.first().store();
    std::vector<float> all(store.values().begin(), store.values().end());
    all.insert(all.end(), store.buffer_values().begin(), store.buffer_values().end());
    return all;
  }

 private:
  comm::World world_;
  const Set set_;
  const BatchPlan plan_;
  ReplicaTeam team_;
  int64_t steps_ = 0;
  const std::function<void(Member&)> step_ = [this](Member& m) {
    const auto next = [&m]() -> const nn::Batch& { return *m.train->next(); };
    EXPECT_TRUE(m.step->run(next, steps_, steps_, 0.05, false, m.timer).taken);
  };
};

struct Mode {
  int replicas;
  bool root;
};

class Team : public testing::TestWithParam<Mode> {
 protected:
  const int replicas_ = GetParam().replicas;
  const bool root_ = GetParam().root;
};

INSTANTIATE_TEST_SUITE_P(Replicas, Team,
                         testing::Values(Mode{2, false}, Mode{2, true}, Mode{4, false}, Mode{4, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.replicas) +
                                  (info.param.root ? "root" : "allreduce");
                         });

// The last batch of 21 samples is one full shard, one of a single sample, and two empty ones.
TEST_P(Team, TrainsToTheBitsOfOneReplicaThatAccumulates) {
  for (const int64_t samples : {32, 21}) {
    Training alone(samples, 1, false), team(samples, replicas_, root_);
    for (int step = 0; step < 5; ++step) {
      alone.step();
      team.step();
    }
    team.expect_agreement();
    EXPECT_TRUE(alone.state() == team.state()) << samples << " samples";
    const Evaluation expected = alone.evaluate(), seen = team.evaluate();
    EXPECT_EQ(seen.count, samples);
    EXPECT_EQ(seen.loss, expected.loss);
    EXPECT_EQ(seen.top1, expected.top1);
  }
}

TEST_P(Team, AllocatesNothingAndTouchesNoNewPageAfterTwoSteps) {
  Training training(64, replicas_, root_);
  for (int step = 0; step < 2; ++step) training.step();
  test::allocations = test::largest_allocation = 0;
  const int64_t faults = test::page_faults();
  for (int step = 0; step < 4; ++step) training.step();
  const int64_t new_faults = test::page_faults() - faults;
  EXPECT_EQ(test::allocations, 0);
  EXPECT_LE(test::largest_allocation, 1024);                         // of oneDNN
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory grows
  EXPECT_LE(new_faults, 8);                                          // the heap's own pages
#endif
}

TEST_P(Team, EndsTheStepOfAllWithWhatOneReplicaThrew) {
  for (int failing = 0; failing < replicas_; ++failing) {
    Training training(64, replicas_, root_);
    training.step();
    try {
      training.team().run([&](Member& m) {
        const auto next = [&]() -> const nn::Batch& {
          if (m.device_index == failing) throw std::runtime_error("a fault");
          return *m.train->next();
        };
        m.step->run(next, 1, 1, 0.05, false, m.timer);
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "a fault");
    }
  }
}

}  // namespace
}  // namespace lockstep::train
