#include "train/model_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/load.h"
#include "core/error.h"
#include "core/hash.h"

namespace lockstep::train {

using checkpoint::SafetensorsFile;
using checkpoint::TensorSpec;
using checkpoint::TensorStorage;

namespace {

constexpr const char* kMeanSuffix = ".running_mean";
constexpr const char* kCounter = ".num_batches_tracked";
constexpr const char* kAverage = "ema.";

std::vector<std::string> counters(const device::Store& store) {
  std::vector<std::string> names;
  for (const device::BufferSlot& b : store.buffers())
    if (b.name.ends_with(kMeanSuffix))
      names.push_back(b.name.substr(0, b.name.size() - std::string(kMeanSuffix).size()) + kCounter);
  return names;
}

void load_model(const SafetensorsFile& file, device::Store& store) {
  std::vector<float> logical;
  for (const device::ParameterSlot& p : store.parameters()) {
    logical.resize(p.shape.count());
    checkpoint::to_f32(*file.find(p.name), logical);
    store.pack(p, logical, store.values());
  }
  for (const device::BufferSlot& b : store.buffers())
    checkpoint::to_f32(*file.find(b.name), store.buffer_values().subspan(b.range.begin, b.shape.count()));
  store.refresh_copies();
}

}  // namespace

std::string params_hash(const device::Store& store, std::span<const float> values) {
  std::vector<const device::ParameterSlot*> slots;
  for (const device::ParameterSlot& p : store.parameters()) slots.push_back(&p);
  std::ranges::sort(slots, {}, [](const device::ParameterSlot* p) { return p->name; });
  Xxh3Stream hash;
  std::vector<float> logical;
  for (const device::ParameterSlot* p : slots) {
    logical.resize(p->shape.count());
    store.unpack(*p, values, logical);
    hash.update(logical.data(), logical.size() * sizeof(float));
  }
  return hex64(hash.digest());
}

std::vector<TensorSpec> model_specs(const device::Store& store) {
  std::vector<TensorSpec> specs;
  for (const device::ParameterSlot& p : store.parameters()) specs.push_back({p.name, p.shape});
  for (const device::BufferSlot& b : store.buffers()) specs.push_back({b.name, b.shape});
  for (const std::string& name : counters(store)) specs.push_back({name, {}, Dtype::i64});
  return specs;
}

std::vector<TensorSpec> optimizer_specs(const device::Store& store, Optimizer& optimizer) {
  std::vector<TensorSpec> specs;
  for (const auto& [prefix, flat] : optimizer.state())
    for (const device::ParameterSlot& p : store.parameters())
      specs.push_back({prefix + "." + p.name, p.shape});
  return specs;
}

void save_tensors(device::Store& store, Optimizer& optimizer, int64_t taken, checkpoint::Snapshot& snapshot) {
  snapshot.model.layout(model_specs(store));
  size_t i = 0;
  for (const device::ParameterSlot& p : store.parameters())
    store.unpack(p, store.values(), snapshot.model.as<float>(i++));
  for (const device::BufferSlot& b : store.buffers())
    std::ranges::copy(store.buffer_values().subspan(b.range.begin, b.shape.count()),
                      snapshot.model.as<float>(i++).begin());
  while (i < snapshot.model.size()) snapshot.model.as<int64_t>(i++)[0] = taken;

  snapshot.optimizer.layout(optimizer_specs(store, optimizer));
  i = 0;
  for (const auto& [prefix, flat] : optimizer.state())
    for (const device::ParameterSlot& p : store.parameters())
      store.unpack(p, flat, snapshot.optimizer.as<float>(i++));
}

void load_tensors(const SafetensorsFile& model, const SafetensorsFile& state, device::Store& store,
                  Optimizer* optimizer) {
  checkpoint::require_same_model(model, model_specs(store));
  if (optimizer) checkpoint::require_same_model(state, optimizer_specs(store, *optimizer));
  load_model(model, store);
  if (!optimizer) return;
  std::vector<float> logical;
  for (const auto& [prefix, flat] : optimizer->state())
    for (const device::ParameterSlot& p : store.parameters()) {
      logical.resize(p.shape.count());
      checkpoint::to_f32(*state.find(prefix + "." + p.name), logical);
      store.pack(p, logical, flat);
    }
}

void load_weights(const SafetensorsFile& file, device::Store& store) {
  std::vector<TensorSpec> expected = model_specs(store);
  std::erase_if(expected,
                [&](const TensorSpec& s) { return s.name.ends_with(kCounter) && !file.find(s.name); });
  checkpoint::require_weights(file, expected);
  load_model(file, store);
  const auto refuse = [&](const std::string& name) {
    throw UserError(
        fmt::format("tensor '{}' in '{}' holds values that are not finite", name, file.path().string()),
        "nothing can be trained from or measured with them", "choose other weights");
  };
  const auto finite = [](std::span<const float> values) {
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  };
  for (const device::ParameterSlot& p : store.parameters())
    if (!finite(store.values().subspan(p.range.begin, p.range.size()))) refuse(p.name);
  for (const device::BufferSlot& b : store.buffers())
    if (!finite(store.buffer_values().subspan(b.range.begin, b.shape.count()))) refuse(b.name);
}

bool load_average(const SafetensorsFile& state, device::Store& store) {
  std::vector<TensorSpec> average;
  for (const device::ParameterSlot& p : store.parameters()) average.push_back({kAverage + p.name, p.shape});
  if (!state.find(average.front().name)) return false;
  // The moments beside it do not matter here.
  for (const checkpoint::TensorView& t : state.tensors())
    if (!t.name.starts_with(kAverage)) average.push_back({t.name, t.shape, t.dtype});
  checkpoint::require_same_model(state, average);
  std::vector<float> logical;
  for (const device::ParameterSlot& p : store.parameters()) {
    logical.resize(p.shape.count());
    checkpoint::to_f32(*state.find(kAverage + p.name), logical);
    store.pack(p, logical, store.values());
  }
  store.refresh_copies();
  return true;
}

}  // namespace lockstep::train
