#include "train/model_state.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "models/registry.h"

namespace lockstep::train {
namespace {

struct Model {
  explicit Model(const std::string& name, int64_t batch = 4) : device(device::make_cpu_device(1)) {
    store = device->make_store(models::build(models::resolve({.name = name}), batch));
    store->initialize(5);
    optimizer = std::make_unique<Optimizer>(*device, *store, OptimOptions{}, 0.9);
  }
  void step() {
    for (size_t i = 0; i < store->gradients().size(); ++i) store->gradients()[i] = 0;
    for (const device::ParameterSlot& p : store->parameters()) {
      std::vector<float> logical(p.shape.count());
      for (size_t i = 0; i < logical.size(); ++i) logical[i] = static_cast<float>(i % 7) * 0.01f - 0.02f;
      store->pack(p, logical, store->gradients());
    }
    optimizer->update(0.1, 0, 1);
  }
  std::string hash() { return params_hash(*store, store->values()); }
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Store> store;
  std::unique_ptr<Optimizer> optimizer;
};

struct Files {
  Files() : folder(std::filesystem::path(testing::TempDir()) / "model_state_test") {
    std::filesystem::create_directories(folder);
  }
  ~Files() { std::filesystem::remove_all(folder); }
  checkpoint::SafetensorsFile write(const std::string& name, const checkpoint::TensorStorage& tensors) const {
    checkpoint::write_safetensors(folder / name, tensors.views());
    return checkpoint::SafetensorsFile(folder / name);
  }
  std::filesystem::path folder;
};

TEST(ModelState, ComesBackBitForBit) {
  Files files;
  Model a("cnn"), b("cnn", 16);
  a.step();
  checkpoint::Snapshot snapshot;
  save_tensors(*a.store, *a.optimizer, 1, snapshot);
  EXPECT_NE(a.hash(), b.hash());
  load_tensors(files.write("m", snapshot.model), files.write("o", snapshot.optimizer), *b.store,
               b.optimizer.get());
  EXPECT_EQ(a.hash(), b.hash());
  a.step(), b.step();  // momentum and average came along
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(params_hash(*a.store, a.optimizer->average()), params_hash(*b.store, b.optimizer->average()));
}

TEST(ModelState, OfAnotherModelIsRefusedAndChangesNothing) {
  Files files;
  Model a("cnn"), b("resnet18_32");
  checkpoint::Snapshot snapshot;
  save_tensors(*b.store, *b.optimizer, 0, snapshot);
  const std::string before = a.hash();
  EXPECT_THROW(load_tensors(files.write("m", snapshot.model), files.write("o", snapshot.optimizer), *a.store,
                            a.optimizer.get()),
               UserError);
  EXPECT_EQ(a.hash(), before);
}

TEST(ModelState, WeightsLoadWithoutCounters) {
  Files files;
  Model a("cnn"), b("cnn");
  a.step();
  checkpoint::Snapshot snapshot;
  save_tensors(*a.store, *a.optimizer, 1, snapshot);
  std::vector<checkpoint::TensorView> views = snapshot.model.views();
  std::erase_if(views,
                [](const checkpoint::TensorView& v) { return v.name.ends_with("num_batches_tracked"); });
  checkpoint::write_safetensors(files.folder / "w", views);
  load_weights(checkpoint::SafetensorsFile(files.folder / "w"), *b.store);
  EXPECT_EQ(a.hash(), b.hash());
}

TEST(Optimizer, LeavesNormsAndBiasesOutOfDecayWhenAsked) {
  Model m("cnn");
  OptimOptions options;
  options.momentum = 0;
  options.weight_decay = 0.5;
  options.decay_norm_bias = false;
  Optimizer optimizer(*m.device, *m.store, options, 0);
  m.device->fill(m.store->gradients(), 0);
  const std::vector<float> before(m.store->values().begin(), m.store->values().end());
  optimizer.update(0.1, 0, 1);
  for (const device::ParameterSlot& p : m.store->parameters())
    for (int64_t i = p.range.begin; i < p.range.end; ++i)
      ASSERT_FLOAT_EQ(m.store->values()[i], p.norm_or_bias ? before[i] : before[i] * 0.95f) << p.name;
}

}  // namespace
}  // namespace lockstep::train
