#include "train/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/cpu_device.h"
#include "models/registry.h"
#include "train/model_state.h"
#include "train/replica.h"

namespace lockstep::train {
namespace {

// Two replicas that start alike.
class Traces : public testing::Test {
 protected:
  Traces() {
    one_.store().initialize(3);
    other_.store().initialize(3);
  }
  static nn::Graph graph(int64_t samples) {
    models::ModelOptions model;
    model.name = "cnn";
    return models::build(models::resolve(model), samples);
  }
  void record_both() {
    record(a_, one_.store());
    record(b_, other_.store());
  }
  void finish_both() {
    finish(a_, one_.store());
    finish(b_, other_.store());
  }
  const std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  Replica one_{*device_, graph, 4}, other_{*device_, graph, 4};
  Trace a_, b_;
};

TEST_F(Traces, OfEqualRunsDoNotDiffer) {
  record_both();
  record_both();
  finish_both();
  EXPECT_TRUE(differences(a_, b_).empty());
  EXPECT_EQ(earliest({}), nullptr);
  EXPECT_EQ(a_.params_hash, b_.params_hash);
  EXPECT_EQ(a_.params_hash, params_hash(one_.store(), one_.store().values()));
}

TEST_F(Traces, NameTensorDistanceValuesAndFirstStep) {
  device::Store& store = other_.store();
  const device::ParameterSlot &near = store.parameters()[0], &far = store.parameters()[2];
  const device::BufferSlot& buffer = store.buffers().front();
  float& little = store.values()[near.range.begin];
  float& much = store.values()[far.range.begin];
  record_both();                          // the start
  little = std::nextafter(little, 9.0f);  // step 1
  record_both();
  const float before = much;
  much = 2 * before;  // step 2
  store.buffer_values()[buffer.range.begin] = NAN;
  record_both();
  finish_both();

  const std::vector<Difference> all = differences(a_, b_);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, buffer.name);  // NaN is farthest
  EXPECT_EQ(all[1].name, far.name);
  EXPECT_EQ(all[1].ulp, 1u << 23);
  EXPECT_EQ(all[1].reference, before);
  EXPECT_EQ(all[1].other, 2 * before);
  EXPECT_EQ(all[1].first_step, 2);
  EXPECT_EQ(all[2].name, near.name);
  EXPECT_EQ(all[2].ulp, 1u);
  EXPECT_EQ(earliest(all)->name, near.name);
  EXPECT_EQ(earliest(all)->first_step, 1);
  EXPECT_NE(a_.params_hash, b_.params_hash);
}

TEST_F(Traces, KeepADifferenceThatWentAwayAgain) {
  float& value = other_.store().values()[other_.store().parameters()[0].range.begin];
  const float before = value;
  record_both();
  value += 1;
  record_both();
  value = before;
  record_both();
  finish_both();
  const std::vector<Difference> all = differences(a_, b_);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].ulp, 0u);
  EXPECT_EQ(all[0].first_step, 1);
}

}  // namespace
}  // namespace lockstep::train
