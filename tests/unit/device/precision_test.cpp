// Mixed precision as a trainer sees it: the loss scale, overflow, memory, the note.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu/cpu_device.h"
#include "device/cpu/elementwise.h"
#include "models/registry.h"

namespace lockstep::device {
namespace {

struct Arithmetic {
  const char* name;
  nn::Precision precision;
  bool native_bf16;
};
constexpr Arithmetic kFp32{"fp32", nn::Precision::fp32, false};
constexpr Arithmetic kNative{"bf16_native", nn::Precision::bf16, true};
constexpr Arithmetic kEmulated{"bf16_emulated", nn::Precision::bf16, false};
constexpr Arithmetic kFp16{"fp16", nn::Precision::fp16, false};

struct Result {
  float loss;
  std::vector<float> gradients;
};

// One step of the small CNN: loss and gradients. `rounded`: of images and weights that half can hold.
Result step(const Arithmetic& a, PassKey key, int threads = 2, bool rounded = false) {
  constexpr int64_t kBatch = 8;
  auto device = make_cpu_device(threads, {}, a.native_bf16);
  const nn::Graph g = models::build(models::resolve({.name = "cnn"}), kBatch);
  auto store = device->make_store(g, a.precision);
  auto program = device->compile(g, *store, Mode::train);
  store->initialize(1);
  std::vector<float> images(g.shape(0).count());
  for (size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i * i % 1013)));
  if (rounded) {
    const auto type = dynamic_cast<cpu::CpuStore&>(*store).half_type();
    cpu::round_to(type, images.data(), static_cast<int64_t>(images.size()));
    for (const ParameterSlot& p : store->parameters())
      if (!p.norm_or_bias) cpu::round_to(type, store->values().data() + p.range.begin, p.range.size());
  }
  store->refresh_copies();
  const std::vector<int32_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<uint64_t> rows(kBatch, 3);
  program->load({kBatch, images.data(), labels.data(), rows.data(), nullptr});
  program->forward(key);
  program->backward([](Range) {});
  return {store->metrics(store->statistics()).loss_sum,
          std::vector<float>(store->gradients().begin(), store->gradients().end())};
}

class LossScale : public testing::TestWithParam<Arithmetic> {};

TEST_P(LossScale, MultipliesTheGradientsAndNotTheLoss) {
  const Result plain = step(GetParam(), {.gradient_scale = 0.125f});
  Result scaled = step(GetParam(), {.gradient_scale = 0.125f, .loss_scale = 1024});
  EXPECT_EQ(scaled.loss, plain.loss);
  for (float& g : scaled.gradients) g /= 1024;
  EXPECT_EQ(scaled.gradients, plain.gradients);  // a power of two changes exponents only
}

// In fp16 some gradients are subnormal without the scale.
INSTANTIATE_TEST_SUITE_P(All, LossScale, testing::Values(kFp32, kNative, kEmulated),
                         [](const auto& info) { return std::string(info.param.name); });

int64_t count_not_finite(const std::vector<float>& v) {
  return std::count_if(v.begin(), v.end(), [](float x) { return !std::isfinite(x); });
}

TEST(LossScale, ThatOverflowsFp16ShowsInTheGradients) {
  EXPECT_EQ(count_not_finite(step(kFp16, {.loss_scale = 1024}).gradients), 0);
  EXPECT_GT(count_not_finite(step(kFp16, {.loss_scale = 0x1p24f}).gradients), 0);
  EXPECT_EQ(count_not_finite(step(kFp32, {.loss_scale = 0x1p24f}).gradients), 0);
  EXPECT_EQ(count_not_finite(step(kEmulated, {.loss_scale = 0x1p24f}).gradients), 0);
}

TEST(LossScale, KeepsSmallGradientsInFp16) {
  const PassKey tiny{.gradient_scale = 0x1p-20f};
  PassKey scaled = tiny;
  scaled.loss_scale = 0x1p20f;
  auto zeros = [](const Result& r) { return std::count(r.gradients.begin(), r.gradients.end(), 0.0f); };
  EXPECT_GT(zeros(step(kFp16, tiny)), 2 * zeros(step(kFp16, scaled)));
}

class SameBits : public testing::TestWithParam<Arithmetic> {};

TEST_P(SameBits, OnEachRun) {
  for (int threads : {1, 2})
    EXPECT_EQ(step(GetParam(), {}, threads).gradients, step(GetParam(), {}, threads).gradients);
  EXPECT_EQ(step(GetParam(), {}, 1).loss, step(GetParam(), {}, 2).loss);
}

INSTANTIATE_TEST_SUITE_P(All, SameBits, testing::Values(kFp32, kNative, kEmulated, kFp16),
                         [](const auto& info) { return std::string(info.param.name); });

class Operands : public testing::TestWithParam<Arithmetic> {};

TEST_P(Operands, AreImagesAndWeightsRoundedToHalf) {
  const Result as_they_are = step(GetParam(), {}), rounded = step(GetParam(), {}, 2, true);
  EXPECT_EQ(as_they_are.loss, rounded.loss);
  EXPECT_EQ(as_they_are.gradients, rounded.gradients);
}

INSTANTIATE_TEST_SUITE_P(All, Operands, testing::Values(kNative, kEmulated, kFp16),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Precision, HalvesTakeAboutHalfTheMemory) {
  const nn::Graph g = models::build(models::resolve({.name = "resnet50"}), 16);
  auto arena = [&](const Arithmetic& a) {
    auto device = make_cpu_device(2, {}, a.native_bf16);
    auto store = device->make_store(g, a.precision);
    return static_cast<double>(device->compile(g, *store, Mode::train)->memory().arena);
  };
  const double floats = arena(kFp32);
  EXPECT_LE(arena(kNative), 0.5 * floats);
  EXPECT_LE(arena(kEmulated), 0.6 * floats);
  EXPECT_LE(arena(kFp16), 0.6 * floats);
}

TEST(Precision, TheNoteSaysWhatIsEmulated) {
  EXPECT_EQ(make_cpu_device(1, {}, true)->precision_note(nn::Precision::fp32), "");
  EXPECT_EQ(make_cpu_device(1, {}, true)->precision_note(nn::Precision::bf16), "");
  EXPECT_EQ(make_cpu_device(1, {}, false)->precision_note(nn::Precision::bf16),
            "bf16 is emulated: computed in fp32 on values rounded to bf16");
  EXPECT_EQ(make_cpu_device(1, {}, true)->precision_note(nn::Precision::fp16),
            "fp16 is emulated: computed in fp32 on values rounded to fp16");
}

}  // namespace
}  // namespace lockstep::device
