// After the second step nothing is allocated, no page is touched for the first time, no activation changes
// layout and no primitive is built.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/huge_buffer.h"
#include "device/cpu/cpu_device.h"
#include "models/registry.h"

namespace {

std::atomic<int64_t> bytes_allocated{0}, largest{0};
void* counted(size_t bytes) {
  bytes_allocated += static_cast<int64_t>(bytes);
  int64_t seen = largest;
  while (static_cast<int64_t>(bytes) > seen &&
         !largest.compare_exchange_weak(seen, static_cast<int64_t>(bytes))) {
  }
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace lockstep::device {
namespace {

struct Arithmetic {
  const char* name;
  nn::Precision precision;
  bool native_bf16;
};
constexpr Arithmetic kAll[] = {{"fp32", nn::Precision::fp32, false},
                               {"bf16_native", nn::Precision::bf16, true},
                               {"bf16_emulated", nn::Precision::bf16, false},
                               {"fp16", nn::Precision::fp16, false}};

class SteadyState : public testing::TestWithParam<std::tuple<const char*, Arithmetic>> {};

TEST_P(SteadyState, AllocatesNothingAndTouchesNoNewPage) {
  constexpr int64_t kBatch = 4;
  const auto& [model, arithmetic] = GetParam();
  auto device = make_cpu_device(2, {}, arithmetic.native_bf16);
  models::ModelOptions options;
  options.name = model;
  options = models::resolve(options);
  if (options.height > 64) options.height = options.width = 64;
  const nn::Graph g = models::build(options, kBatch);
  auto store = device->make_store(g, arithmetic.precision);
  auto program = device->compile(g, *store, Mode::train);
  store->initialize(1);
  store->refresh_copies();
  const std::vector<float> images(g.shape(0).count(), 0.5f);
  const std::vector<int32_t> labels(kBatch, 1);
  const std::vector<uint64_t> rows{0, 1, 2, 3};
  const HugeBuffer momentum(store->values().size_bytes());
  const std::function<void(Range)> ready = [](Range) {};
  auto step = [&](uint32_t i) {
    program->load({kBatch, images.data(), labels.data(), rows.data(), nullptr});
    program->forward({.seed = 1, .step = i, .gradient_scale = 0.25f});
    program->backward(ready);
    device->sum_of_squares(store->gradients());
    device->update(SgdStep{.lr = 0.001f, .momentum = 0.9f},
                   {store->values(), momentum.as<float>(), {}, {}, store->gradients()});
    store->refresh_copies();
  };
  for (uint32_t i = 0; i < 2; ++i) step(i);

  const int64_t created = program->counts().primitives_created;
  rusage before{}, after{};
  bytes_allocated = largest = 0;
  getrusage(RUSAGE_SELF, &before);
  for (uint32_t i = 2; i < 6; ++i) step(i);
  getrusage(RUSAGE_SELF, &after);

  // oneDNN's own call makes a map of its arguments, a few dozen bytes each; nothing of a tensor's size may
  // appear.
  EXPECT_LE(largest, 1024);
  EXPECT_LE(bytes_allocated / 4, 1024 * created);
#ifndef __SANITIZE_ADDRESS__                         // whose heap gives no page back
  EXPECT_LE(after.ru_minflt - before.ru_minflt, 8);  // the heap's own pages
#endif
  EXPECT_EQ(program->counts().activation_reorders, 0);
  EXPECT_EQ(program->counts().primitives_created, created);
}

INSTANTIATE_TEST_SUITE_P(All, SteadyState,
                         testing::Combine(testing::Values("cnn", "resnet18", "resnet50", "resnet18_32"),
                                          testing::ValuesIn(kAll)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
                         });

TEST(Programs, CompiledLateSeeTheParametersAsTheyAre) {
  auto device = make_cpu_device(1);
  models::ModelOptions options = models::resolve({.name = "resnet18_32"});
  const nn::Graph g = models::build(options, 2);
  const std::vector<float> images(g.shape(0).count(), 0.5f);
  const std::vector<int32_t> labels(2, 1);
  const std::vector<uint64_t> rows{0, 1};
  auto gradient = [&](bool early) {
    auto store = device->make_store(g);
    std::unique_ptr<Program> program;
    if (early) program = device->compile(g, *store, Mode::train);
    store->initialize(1);
    store->refresh_copies();
    if (!early) program = device->compile(g, *store, Mode::train);
    program->load({2, images.data(), labels.data(), rows.data(), nullptr});
    program->forward({});
    program->backward([](Range) {});
    return std::vector<float>(store->gradients().begin(), store->gradients().end());
  };
  EXPECT_EQ(gradient(false), gradient(true));
}

TEST(Programs, OfOneStoreShareTheirArena) {
  auto device = make_cpu_device(1);
  models::ModelOptions options = models::resolve({.name = "cnn"});
  auto store = device->make_store(models::build(options, 8));
  auto large = device->compile(models::build(options, 8), *store, Mode::train);
  auto tail = device->compile(models::build(options, 3), *store, Mode::train);
  auto eval = device->compile(models::build(options, 8), *store, Mode::evaluate);
  EXPECT_LT(tail->memory().arena, large->memory().arena);
  EXPECT_LT(eval->memory().arena, large->memory().arena);
  EXPECT_LE(large->memory().arena, large->memory().lower_bound * 105 / 100);
  EXPECT_EQ(tail->counts().activation_reorders, 0);
  EXPECT_EQ(eval->counts().activation_reorders, 0);
}

}  // namespace
}  // namespace lockstep::device
