// The rounding to bf16 and fp16 is exact: every half, and every float around the middle of two of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {
namespace {

using type = memory::data_type;

struct Format {
  type storage;
  int exponent_bits, fraction_bits;
};
constexpr Format kBf16{type::bf16, 8, 7}, kFp16{type::f16, 5, 10};

// What the bits of a finite half mean, from the definition. The one past the largest is 2 * 2^emax, from
// which values on count as infinite.
double meaning(const Format& f, uint32_t magnitude) {
  const int fraction = static_cast<int>(magnitude & ((1u << f.fraction_bits) - 1));
  const int exponent = static_cast<int>(magnitude >> f.fraction_bits),
            bias = (1 << (f.exponent_bits - 1)) - 1;
  const int one = exponent > 0 ? 1 << f.fraction_bits : 0;
  return std::ldexp(one + fraction, std::max(exponent, 1) - bias - f.fraction_bits);
}
uint32_t infinity_of(const Format& f) { return ((1u << f.exponent_bits) - 1) << f.fraction_bits; }

std::vector<float> widened(const Format& f, std::vector<uint16_t> halves) {
  std::vector<float> out(halves.size());
  cast({reinterpret_cast<std::byte*>(halves.data()), storage_of(f.storage)},
       {reinterpret_cast<std::byte*>(out.data()), 0}, static_cast<int64_t>(halves.size()));
  return out;
}
std::vector<uint16_t> narrowed(const Format& f, std::vector<float> floats) {
  std::vector<uint16_t> out(floats.size());
  cast({reinterpret_cast<std::byte*>(floats.data()), 0},
       {reinterpret_cast<std::byte*>(out.data()), storage_of(f.storage)},
       static_cast<int64_t>(floats.size()));
  return out;
}

class Half : public testing::TestWithParam<Format> {};

TEST_P(Half, EachOfThemIsAFloatAndComesBack) {
  const Format f = GetParam();
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<float> floats = widened(f, all);
  const std::vector<uint16_t> back = narrowed(f, floats);
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint32_t magnitude = i & 0x7fff;
    if (magnitude > infinity_of(f)) {
      EXPECT_TRUE(std::isnan(floats[i])) << i;
      EXPECT_GT(back[i] & 0x7fff, infinity_of(f)) << i;
      continue;
    }
    const double value = magnitude == infinity_of(f) ? INFINITY : meaning(f, magnitude);
    ASSERT_EQ(floats[i], i < 0x8000 ? value : -value) << i;
    ASSERT_EQ(std::signbit(floats[i]), i >= 0x8000) << i;
    ASSERT_EQ(back[i], i);
  }
}

TEST_P(Half, FloatsGoToTheNearestAndTiesToEven) {
  const Format f = GetParam();
  std::vector<float> floats;
  std::vector<uint32_t> expected;
  for (uint32_t h = 0; h < infinity_of(f); ++h) {
    // Exact in float: one bit more than the half has. Beyond the largest, the next would be a power of two.
    const auto middle = static_cast<float>((meaning(f, h) + meaning(f, h + 1)) / 2);
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    for (auto [x, to] : {std::pair{std::nextafter(middle, 0.0f), h}, std::pair{middle, even},
                         std::pair{std::nextafter(middle, INFINITY), h + 1}}) {
      floats.push_back(x), expected.push_back(to);
      floats.push_back(-x), expected.push_back(to | 0x8000);
    }
  }
  for (float x : {std::numeric_limits<float>::max(), INFINITY}) {
    floats.push_back(x), expected.push_back(infinity_of(f));
    floats.push_back(-x), expected.push_back(infinity_of(f) | 0x8000);
  }
  for (float x : {std::numeric_limits<float>::denorm_min(), 0.0f}) {
    floats.push_back(x), expected.push_back(0);
    floats.push_back(-x), expected.push_back(0x8000);
  }
  const std::vector<uint16_t> halves = narrowed(f, floats);
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(halves[i], expected[i]) << floats[i];

  std::vector<float> rounded = floats;
  round_to(f.storage, rounded.data(), static_cast<int64_t>(rounded.size()));
  const std::vector<float> there_and_back = widened(f, halves);
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(rounded[i], there_and_back[i]) << floats[i];
}

TEST_P(Half, OneAtATimeIsRoundedAsAVectorIs) {
  const Format f = GetParam();
  for (uint32_t i = 0; i < 4096; ++i) {
    const auto x = std::bit_cast<float>(i * 1048583u);
    const std::vector<uint16_t> one = narrowed(f, {x}), sixteen = narrowed(f, std::vector<float>(16, x));
    ASSERT_EQ(one[0], sixteen[7]) << x;
    ASSERT_EQ(std::bit_cast<uint32_t>(widened(f, one)[0]),
              std::bit_cast<uint32_t>(widened(f, std::vector<uint16_t>(16, one[0]))[7]))
        << x;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Half, testing::Values(kBf16, kFp16), [](const auto& info) {
  return std::string(info.param.storage == type::bf16 ? "bf16" : "fp16");
});

}  // namespace
}  // namespace lockstep::device::cpu
