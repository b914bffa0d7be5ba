#include "train/trace.h"

#include <algorithm>

#include "core/hash.h"
#include "train/model_state.h"
#include "train/ulp.h"

namespace lockstep::train {

namespace {

std::span<const float> part(std::span<const float> flat, const device::Range& range) {
  return flat.subspan(range.begin, range.size());
}

uint64_t hash_of(std::span<const float> values) { return xxh3(std::as_bytes(values)); }

}  // namespace

void record(Trace& trace, device::Store& store) {
  const auto& parameters = store.parameters();
  const auto& buffers = store.buffers();
  trace.tensors.resize(parameters.size() + buffers.size());
  auto tensor = trace.tensors.begin();
  const auto add = [&](const std::string& name, std::span<const float> values) {
    tensor->name = name;
    tensor++->hashes.push_back(hash_of(values));
  };
  for (const device::ParameterSlot& p : parameters) add(p.name, part(store.values(), p.range));
  for (const device::BufferSlot& b : buffers) add(b.name, part(store.buffer_values(), b.range));
}

void finish(Trace& trace, device::Store& store) {
  auto tensor = trace.tensors.begin();
  for (const device::ParameterSlot& p : store.parameters()) {
    tensor->values.resize(p.shape.count());
    store.unpack(p, store.values(), tensor++->values);
  }
  for (const device::BufferSlot& b : store.buffers()) {
    const std::span<const float> values = store.buffer_values().subspan(b.range.begin, b.shape.count());
    tensor++->values.assign(values.begin(), values.end());
  }
  trace.params_hash = params_hash(store, store.values());
}

std::vector<Difference> differences(const Trace& reference, const Trace& other) {
  std::vector<Difference> all;
  for (size_t i = 0; i < reference.tensors.size(); ++i) {
    const TracedTensor &a = reference.tensors[i], &b = other.tensors[i];
    const auto at = std::ranges::mismatch(a.hashes, b.hashes).in1;
    if (at == a.hashes.end()) continue;
    const FarthestPair far = farthest_pair(a.values, b.values);
    all.push_back({a.name, far.ulp, a.values[far.index], b.values[far.index], at - a.hashes.begin()});
  }
  std::ranges::stable_sort(all, std::greater<>(), &Difference::ulp);
  return all;
}

const Difference* earliest(const std::vector<Difference>& differences) {
  const auto first = std::ranges::min_element(differences, {}, &Difference::first_step);
  return first == differences.end() ? nullptr : &*first;
}

}  // namespace lockstep::train
