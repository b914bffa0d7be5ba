#include "train/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "models/registry.h"

namespace lockstep::train {
namespace {

class Agreement : public testing::Test {
 protected:
  Agreement() {
    models::ModelOptions model;
    model.name = "cnn";
    model = models::resolve(model);
    team_.run([&](Member& m) {
      m.device = device::make_cpu_device(1);
      m.replica = std::make_unique<Replica>(
          *m.device, [model](int64_t samples) { return models::build(model, samples); }, 4);
      m.store().initialize(3);
    });
  }
  std::string difference() {
    try {
      check_agreement(team_, world_, 120);
      return "none";
    } catch (const ClusterError& e) {
      return e.what();
    }
  }
  comm::World world_;
  ReplicaTeam team_{0, 3};
};

TEST_F(Agreement, OfEqualReplicasPasses) { EXPECT_EQ(difference(), "none"); }

TEST_F(Agreement, NamesStepParameterAndTheReplicaThatDiffers) {
  device::Store& store = team_[1].store();
  const device::ParameterSlot& slot = store.parameters()[2];
  float& value = store.values()[slot.range.begin];
  value = std::nextafter(value, 2.0f);  // one bit
  const std::string text = difference();
  EXPECT_THAT(text, testing::HasSubstr("after step '120'"));
  EXPECT_THAT(text, testing::HasSubstr("'" + slot.name + "'"));
  EXPECT_THAT(text, testing::HasSubstr("replica '1' of rank '0'"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("replica '2'")));
}

TEST_F(Agreement, CoversBuffers) {
  device::Store& store = team_[2].store();
  const device::BufferSlot& slot = store.buffers().back();
  store.buffer_values()[slot.range.begin] += 1;
  EXPECT_THAT(difference(),
              testing::AllOf(testing::HasSubstr("'" + slot.name + "'"), testing::HasSubstr("replica '2'")));
}

}  // namespace
}  // namespace lockstep::train
