#include "checkpoint/tensors.h"

#include <cmath>

#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;

TEST(ToF32, KnowsEveryKindOfHalf) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xc000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x0400), 0x1p-14f);
  EXPECT_EQ(f16_to_f32(0x7c00), INFINITY);
  EXPECT_EQ(f16_to_f32(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e00)));
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(bf16_to_f32(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_f32(0xc040), -3.0f);
}

TEST(ToF32, ReadsEachDtypeAtAnyAddress) {
  std::vector<std::byte> bytes(1 + 3 * 8);
  auto convert = [&](Dtype dtype, auto a, auto b) {
    std::memcpy(bytes.data() + 1, &a, sizeof(a));
    std::memcpy(bytes.data() + 1 + sizeof(a), &b, sizeof(b));
    std::vector<float> out(2);
    to_f32({"t", dtype, {2}, std::span(bytes).subspan(1, 2 * sizeof(a))}, out);
    return out;
  };
  EXPECT_THAT(convert(Dtype::f32, 1.5f, -2.5f), ElementsAre(1.5f, -2.5f));
  EXPECT_THAT(convert(Dtype::f64, 0.1, 1e300), ElementsAre(0.1f, INFINITY));
  EXPECT_THAT(convert(Dtype::f16, uint16_t{0x3c00}, uint16_t{0x4000}), ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(convert(Dtype::bf16, uint16_t{0x3f80}, uint16_t{0x4000}), ElementsAre(1.0f, 2.0f));
  UserError e = error_of([&] { convert(Dtype::i32, 1, 2); });
  EXPECT_EQ(e.why(), "its dtype is 'i32'");
}

TEST(TensorStorage, KeepsItsMemoryForTheSameLayout) {
  TensorStorage s;
  s.layout({{"a", {3}}, {"b", {2, 2}}});
  s.as<float>(0)[2] = 5;
  const std::byte* where = s.bytes(0).data();
  s.layout({{"a", {3}}, {"b", {2, 2}}});
  EXPECT_EQ(s.bytes(0).data(), where);
  EXPECT_EQ(s.as<float>(0)[2], 5);
  s.layout({{"c", {1}}});
  EXPECT_EQ(s.bytes(0).data(), where);
  EXPECT_EQ(s.views().at(0).name, "c");
}

TEST(TensorStorage, TensorsAreAlignedAndApart) {
  TensorStorage s;
  s.layout({{"a", {3}}, {"b", {}, Dtype::i64}, {"c", {0}}, {"d", {5}, Dtype::u8}});
  const std::byte* end = nullptr;
  for (size_t i = 0; i < s.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.bytes(i).data()) % 64, 0u);
    EXPECT_GE(s.bytes(i).data(), end);
    end = s.bytes(i).data() + s.bytes(i).size();
  }
  EXPECT_EQ(s.as<int64_t>(1).size(), 1u);
  EXPECT_EQ(s.bytes(3).size(), 5u);
}

}  // namespace
}  // namespace lockstep::checkpoint
