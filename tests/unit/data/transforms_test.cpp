#include "data/transforms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "test_files.h"

namespace lockstep::data {
namespace {

using test::pixel;
using test::user_error;

std::vector<uint8_t> picture(const ImageShape& s, uint64_t row = 0) {
  std::vector<uint8_t> image(static_cast<size_t>(s.bytes()));
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(4 * pixel(row, i) + 1);
  return image;
}

struct Applied {
  Shape shape;
  std::vector<float> values;  ///< [C, H, W]
  float at(int64_t c, int64_t y, int64_t x) const {
    return values[static_cast<size_t>((c * shape[1] + y) * shape[2] + x)];
  }
};

Applied apply(const TransformOptions& o, const ImageShape& s, const std::vector<uint8_t>& image, bool train,
              uint64_t epoch = 0, uint64_t row = 0) {
  const size_t c = static_cast<size_t>(s.channels);
  const Transform transform(o, s, std::vector<float>(c, 0.0f), std::vector<float>(c, 1.0f), train, 7);
  Transform::Scratch scratch;
  Applied out{transform.output_shape(),
              std::vector<float>(static_cast<size_t>(transform.output_shape().count()), -9)};
  transform.apply(image.data(), epoch, row, out.values.data(), scratch);
  return out;
}

TEST(Transform, NormalisesToChannelsFirst) {
  const ImageShape s{3, 5, 3};
  const auto image = picture(s);
  const TransformOptions o{.mean = {0.1f, 0.2f, 0.3f}, .std = {0.5f, 0.25f, 2.0f}};
  const Applied out = apply(o, s, image, true);
  EXPECT_EQ(out.shape, (Shape{3, 3, 5}));
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t x = 0; x < 5; ++x) {
        const double p = image[static_cast<size_t>((y * 5 + x) * 3 + c)] / 255.0;
        const size_t ch = static_cast<size_t>(c);
        EXPECT_EQ(out.at(c, y, x), static_cast<float>((p - double{o.mean[ch]}) / double{o.std[ch]}));
      }
}

TEST(Transform, TheDataSetsMeanAndStdHoldUnlessOverridden) {
  const ImageShape s{1, 1, 2};
  const uint8_t image[2] = {255, 0};
  float out[2];
  Transform::Scratch scratch;
  Transform({}, s, {0.5f, 0.25f}, {0.5f, 0.25f}, true, 1).apply(image, 0, 0, out, scratch);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], -1);
  Transform({.mean = {0}, .std = {2}}, s, {0.5f, 0.25f}, {0.5f, 0.25f}, true, 1)
      .apply(image, 0, 0, out, scratch);
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[1], 0);
}

TEST(Transform, CropsComeFromTheZeroPaddedImageAtEveryOffset) {
  const ImageShape s{4, 4, 1};
  const auto image = picture(s);
  std::set<std::pair<int64_t, int64_t>> offsets;
  for (uint64_t row = 0; row < 300; ++row) {
    const Applied out = apply({.pad = 1}, s, image, true, 0, row);
    ASSERT_EQ(out.shape, (Shape{1, 4, 4}));
    int matches = 0;
    for (int64_t dy = -1; dy <= 1; ++dy)
      for (int64_t dx = -1; dx <= 1; ++dx) {
        bool same = true;
        for (int64_t y = 0; y < 4; ++y)
          for (int64_t x = 0; x < 4; ++x) {
            const int64_t sy = y + dy, sx = x + dx;
            const bool inside = sy >= 0 && sy < 4 && sx >= 0 && sx < 4;
            const float wanted =
                inside ? static_cast<float>(image[static_cast<size_t>(sy * 4 + sx)] / 255.0) : 0;
            same &= out.at(0, y, x) == wanted;
          }
        if (same) ++matches, offsets.insert({dy, dx});
      }
    ASSERT_EQ(matches, 1) << "row " << row;
  }
  EXPECT_EQ(offsets.size(), 9u);
}

TEST(Transform, FlipsAboutHalfTheSamplesAndPaddingWithThem) {
  const ImageShape s{2, 3, 1};
  const std::vector<uint8_t> image = {1, 2, 3, 4, 5, 6};
  int flipped = 0;
  for (uint64_t row = 0; row < 1000; ++row) {
    const Applied out = apply({.flip = true, .std = {1.0f / 255}}, s, image, true, 0, row);
    const bool mirror = std::lround(out.at(0, 0, 0)) == 3;
    for (int64_t x = 0; x < 3; ++x) ASSERT_EQ(std::lround(out.at(0, 1, x)), mirror ? 6 - x : 4 + x);
    flipped += mirror;
  }
  EXPECT_NEAR(flipped, 500, 80);
  // A flipped crop is the mirror of the crop: with the same key the offset is the same.
  for (uint64_t row = 0; row < 50; ++row) {
    const Applied plain = apply({.pad = 2}, s, image, true, 0, row);
    const Applied maybe = apply({.pad = 2, .flip = true}, s, image, true, 0, row);
    bool same = plain.values == maybe.values, mirror = true;
    for (int64_t y = 0; y < 2; ++y)
      for (int64_t x = 0; x < 3; ++x) mirror &= plain.at(0, y, x) == maybe.at(0, y, 2 - x);
    ASSERT_TRUE(same || mirror);
  }
}

TEST(Transform, RandomChoicesAreKeyedBySampleAndEpoch) {
  const ImageShape s{16, 16, 3};
  const auto image = picture(s);
  const TransformOptions o{.size = 8, .flip = true, .random_resized_crop = true};
  EXPECT_EQ(apply(o, s, image, true, 3, 5).values, apply(o, s, image, true, 3, 5).values);
  EXPECT_NE(apply(o, s, image, true, 3, 5).values, apply(o, s, image, true, 4, 5).values);
  EXPECT_NE(apply(o, s, image, true, 3, 5).values, apply(o, s, image, true, 3, 6).values);
}

TEST(Transform, EvaluationIsTheCentreAndNeverRandom) {
  const ImageShape s{6, 8, 1};
  const auto image = picture(s);
  const TransformOptions o{.size = 4, .pad = 2, .flip = true, .random_resized_crop = true};
  const Applied out = apply(o, s, image, false);
  for (uint64_t row = 1; row < 20; ++row) EXPECT_EQ(apply(o, s, image, false, row, row).values, out.values);
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 0; x < 4; ++x)
      EXPECT_EQ(out.at(0, y, x), static_cast<float>(image[static_cast<size_t>((y + 1) * 8 + x + 2)] / 255.0));
}

// An independent, slow statement of PIL's and PyTorch's antialiased bilinear filter, two-dimensional at once.
float filtered(const std::vector<uint8_t>& image, const ImageShape& s, int64_t out_h, int64_t out_w,
               int64_t c, int64_t y, int64_t x) {
  auto weight = [](double in, double out, double at, double j) {
    const double scale = in / out, width = std::max(scale, 1.0);
    return std::max(0.0, 1 - std::abs(j + 0.5 - (at + 0.5) * scale) / width);
  };
  double sum = 0, total = 0;
  for (int64_t j = 0; j < s.height; ++j)
    for (int64_t i = 0; i < s.width; ++i) {
      const double w = weight(static_cast<double>(s.height), static_cast<double>(out_h),
                              static_cast<double>(y), static_cast<double>(j)) *
                       weight(static_cast<double>(s.width), static_cast<double>(out_w),
                              static_cast<double>(x), static_cast<double>(i));
      sum += w * image[static_cast<size_t>((j * s.width + i) * s.channels + c)];
      total += w;
    }
  return static_cast<float>(sum / total / 255);
}

TEST(Transform, ResizeIsTheAntialiasedBilinearFilter) {
  for (const ImageShape s : {ImageShape{20, 20, 3}, ImageShape{13, 31, 1}, ImageShape{40, 17, 2}})
    for (int64_t resize : {7, 10, 24}) {
      const auto image = picture(s);
      const Applied out = apply({.resize = resize}, s, image, false);
      EXPECT_EQ(std::min(out.shape[1], out.shape[2]), resize);
      for (int64_t c = 0; c < s.channels; ++c)
        for (int64_t y = 0; y < out.shape[1]; ++y)
          for (int64_t x = 0; x < out.shape[2]; ++x)
            ASSERT_NEAR(out.at(c, y, x), filtered(image, s, out.shape[1], out.shape[2], c, y, x), 2e-6);
    }
}

TEST(Transform, ResizeThenCentreCropIsAPartOfTheResizedImage) {
  const ImageShape s{30, 40, 3};
  const auto image = picture(s);
  const Applied whole = apply({.resize = 15}, s, image, false);
  ASSERT_EQ(whole.shape, (Shape{3, 15, 20}));
  const Applied part = apply({.size = 11, .resize = 15}, s, image, false);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < 11; ++y)
      for (int64_t x = 0; x < 11; ++x)
        ASSERT_EQ(part.at(c, y, x), whole.at(c, y + 2, x + 4));  // 4.5 rounds to even
}

TEST(Transform, ResizeWithPaddingAndFlipKeepsZerosOutside) {
  const ImageShape s{16, 16, 1};
  const std::vector<uint8_t> image(256, 200);
  bool saw_padding = false;
  for (uint64_t row = 0; row < 50; ++row) {
    const Applied out = apply({.resize = 8, .pad = 3, .flip = true}, s, image, true, 0, row);
    for (float v : out.values) {
      ASSERT_TRUE(v == 0 || std::abs(v - 200 / 255.0f) < 1e-6f) << v;
      saw_padding |= v == 0;
    }
  }
  EXPECT_TRUE(saw_padding);
}

// Gradient images give the crop away: a value tells the place it comes from.
TEST(Transform, RandomResizedCropTakesPartsWithinScaleAndRatio) {
  const ImageShape s{64, 64, 2};
  std::vector<uint8_t> image(static_cast<size_t>(s.bytes()));
  for (int64_t y = 0; y < 64; ++y)
    for (int64_t x = 0; x < 64; ++x) {
      image[static_cast<size_t>((y * 64 + x) * 2)] = static_cast<uint8_t>(3 * y);
      image[static_cast<size_t>((y * 64 + x) * 2 + 1)] = static_cast<uint8_t>(3 * x);
    }
  double least = 1, most = 0, mean = 0;
  constexpr int kDraws = 400;
  for (uint64_t row = 0; row < kDraws; ++row) {
    const Applied out = apply({.size = 16, .random_resized_crop = true, .scale_min = 0.25, .scale_max = 0.75},
                              s, image, true, 0, row);
    const double height = (out.at(0, 11, 0) - out.at(0, 4, 0)) * 255 / 3 / 7 * 16;
    const double width = (out.at(1, 0, 11) - out.at(1, 0, 4)) * 255 / 3 / 7 * 16;
    const double area = height * width / 4096, ratio = width / height;
    EXPECT_GT(area, 0.23);
    EXPECT_LT(area, 0.78);
    EXPECT_GT(ratio, 0.70);
    EXPECT_LT(ratio, 1.42);
    least = std::min(least, area), most = std::max(most, area), mean += area / kDraws;
  }
  EXPECT_LT(least, 0.30);
  EXPECT_GT(most, 0.70);
  EXPECT_NEAR(mean, 0.5, 0.03);
}

TEST(Transform, RandomResizedCropFallsBackToTheCentreWhenNothingFits) {
  const ImageShape s{4, 64, 1};
  const auto image = picture(s);
  const TransformOptions o{.size = 4, .random_resized_crop = true, .scale_min = 1, .scale_max = 1};
  const Applied out = apply(o, s, image, true, 0, 1);  // the whole height, 4 * 4/3 = 5 wide, from column 29
  ImageShape part{4, 5, 1};
  std::vector<uint8_t> centre;
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 29; x < 34; ++x) centre.push_back(image[static_cast<size_t>(y * 64 + x)]);
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 0; x < 4; ++x) EXPECT_NEAR(out.at(0, y, x), filtered(centre, part, 4, 4, 0, y, x), 2e-6);
}

TEST(Transform, OptionsThatDoNotFitAreNamed) {
  const ImageShape s{28, 28, 1};
  EXPECT_NE(user_error([&] { output_shape({.size = 32}, s, false); }).find("'32'"), std::string::npos);
  EXPECT_NE(user_error([&] { output_shape({.random_resized_crop = true}, s, true); }).find("data.size"),
            std::string::npos);
  EXPECT_NE(user_error([&] {
              apply({.mean = {1, 2}}, s, picture(s), true);
            }).find("data.mean"),
            std::string::npos);
  EXPECT_NE(user_error([&] { apply({.std = {0}}, s, picture(s), true); }).find("std '0'"), std::string::npos);
  EXPECT_EQ(output_shape({.size = 32, .pad = 2}, s, true), (Shape{1, 32, 32}));
}

}  // namespace
}  // namespace lockstep::data
