// From a stored image to the network's input: crop, flip, resize, normalise. Every random choice is keyed by
// (seed, epoch, row), so no thread, rank or restart changes what a sample looks like.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/shape.h"

namespace lockstep::data {

/// Size of a stored image, u8 [H, W, C].
struct ImageShape {
  int64_t height = 0, width = 0, channels = 0;
  int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// What is done to each image. Training: random_resized_crop, or else resize, pad, random crop; then flip.
/// Evaluation: resize, centre crop. All of it off: the stored image, normalised.
struct TransformOptions {
  /// Output height and width in pixels; 0 keeps the stored (or resized) size.
  int64_t size = 0;
  /// Shorter side in pixels after the resize that comes before the crop, as torchvision's Resize; 0 is no
  /// resize.
  int64_t resize = 0;
  /// Training: zero pixels added on each side before the random crop, as torchvision's RandomCrop(padding).
  int64_t pad = 0;
  /// Training: mirror left to right with probability 1/2.
  bool flip = false;
  /// Training: a random part of the image, resized to size x size, as torchvision's RandomResizedCrop.
  bool random_resized_crop = false;
  /// Smallest and largest part of the area that random_resized_crop takes.
  double scale_min = 0.08, scale_max = 1.0;
  /// Smallest and largest width / height of that part.
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;
  /// Per channel, of pixels in [0, 1]; empty takes the data set's own. One value stands for all channels.
  std::vector<float> mean, std;
};

/// Shape of a transformed sample, [C, H, W]. Throws UserError where the options do not fit the stored image.
Shape output_shape(const TransformOptions& options, const ImageShape& image, bool train);

/// The options made ready for one data set. apply() is const and safe to call from many threads, each with
/// its own Scratch.
class Transform {
 public:
  /// Memory that apply() reuses from call to call.
  struct Scratch {
    std::vector<float> rows, weights_x, weights_y;
    std::vector<int64_t> first_x, first_y;
  };

  /// `mean` and `std` are the data set's, [C]; the options' own win. Throws UserError.
  Transform(const TransformOptions& options, const ImageShape& image, const std::vector<float>& mean,
            const std::vector<float>& std, bool train, uint64_t seed);

  const Shape& output_shape() const { return output_; }
  /// Scratch in which no apply() of this transform has to allocate.
  Scratch make_scratch() const;

  /// u8 [H, W, C] -> f32 [C, H', W'], (x / 255 - mean) / std. Resizing is bilinear, antialiased where it
  /// shrinks, in f32 throughout (torchvision rounds to u8 in between).
  void apply(const uint8_t* image, uint64_t epoch, uint64_t row, float* out, Scratch& scratch) const;

 private:
  /// Part of the stored image that fills the (resized) picture, and the part of that picture that is put out.
  struct View {
    int64_t top = 0, left = 0, height = 0, width = 0;
    int64_t picture_height = 0, picture_width = 0;
    int64_t out_top = 0, out_left = 0;
    bool mirror = false;
  };
  View choose(uint64_t epoch, uint64_t row) const;
  void copy(const uint8_t* image, const View& view, float* out) const;
  void resample(const uint8_t* image, const View& view, float* out, Scratch& scratch) const;

  TransformOptions options_;
  ImageShape image_;
  Shape output_;
  bool train_;
  uint64_t seed_;
  std::vector<std::array<float, 256>> table_;  // by channel: the normalised value of each byte
  std::vector<float> scale_, shift_;           // by channel: the same as scale * x + shift
};

}  // namespace lockstep::data
