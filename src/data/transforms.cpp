#include "data/transforms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::data {
namespace {

/// Size after torchvision's Resize(int): the shorter side becomes `shorter`, the other follows, rounded down.
std::pair<int64_t, int64_t> resized(const ImageShape& image, int64_t shorter) {
  if (shorter == 0) return {image.height, image.width};
  if (image.height <= image.width) return {shorter, shorter * image.width / image.height};
  return {shorter * image.height / image.width, shorter};
}

[[noreturn]] void refuse(const std::string& why, const std::string& todo) {
  throw UserError("the transforms do not fit the data", why, todo);
}

std::vector<float> per_channel(const char* option, const std::vector<float>& own,
                               const std::vector<float>& of_set, int64_t channels) {
  const std::vector<float>& values = own.empty() ? of_set : own;
  if (values.size() == 1) return std::vector<float>(static_cast<size_t>(channels), values[0]);
  if (static_cast<int64_t>(values.size()) != channels)
    refuse(fmt::format("data.{} has '{}' values, the images have '{}' channels", option, values.size(),
                       channels),
           fmt::format("give data.{} one value, or one for each channel", option));
  return values;
}

/// Pixels of `in` that one of `size` output pixels may depend on.
int64_t max_taps(int64_t in, int64_t size) {
  const int64_t width = std::max<int64_t>((in + size - 1) / size, 1);
  return std::min(in, 2 * width + 1);
}

/// Taps of an antialiased triangle filter, `taps` a position, for a resize of `in` to `size` pixels of which
/// [begin, begin + count) are wanted; mirrored: the last one first. The weights are those of PIL and of
/// torch.nn.functional.interpolate(antialias=True).
int64_t make_taps(int64_t in, int64_t size, int64_t begin, int64_t count, bool mirror,
                  std::vector<int64_t>& first, std::vector<float>& weights) {
  const double scale = static_cast<double>(in) / static_cast<double>(size);
  const double width = std::max(scale, 1.0);
  const int64_t taps = max_taps(in, size);
  first.resize(static_cast<size_t>(count));
  weights.assign(static_cast<size_t>(count * taps), 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const double centre = scale * (static_cast<double>(begin + i) + 0.5);
    int64_t low = std::max<int64_t>(static_cast<int64_t>(centre - width + 0.5), 0);
    const int64_t high = std::min<int64_t>(static_cast<int64_t>(centre + width + 0.5), in);
    const int64_t at = mirror ? count - 1 - i : i;
    const int64_t start = std::min(low, in - taps);  // all taps stay inside the image; the extra ones weigh 0
    float* w = &weights[static_cast<size_t>(at * taps)];
    double sum = 0;
    for (int64_t j = low; j < high; ++j)
      sum += std::max(0.0, 1.0 - std::abs((static_cast<double>(j) - centre + 0.5) / width));
    for (int64_t j = low; j < high; ++j)
      w[j - start] = static_cast<float>(
          std::max(0.0, 1.0 - std::abs((static_cast<double>(j) - centre + 0.5) / width)) / sum);
    first[static_cast<size_t>(at)] = start;
  }
  return taps;
}

}  // namespace

Shape output_shape(const TransformOptions& o, const ImageShape& image, bool train) {
  if (train && o.random_resized_crop) {
    if (o.size == 0) refuse("data.random_resized_crop needs an output size", "set data.size");
    if (!(0 < o.scale_min && o.scale_min <= o.scale_max && o.scale_max <= 1))
      refuse(fmt::format("the scale range '{}' to '{}' is not within 0 to 1", o.scale_min, o.scale_max),
             "give a smallest and a largest part of the area");
    if (!(0 < o.ratio_min && o.ratio_min <= o.ratio_max))
      refuse(fmt::format("the ratio range '{}' to '{}' is empty", o.ratio_min, o.ratio_max),
             "give a smallest and a largest width / height");
    return {image.channels, o.size, o.size};
  }
  auto [height, width] = resized(image, o.resize);
  const int64_t pad = train ? o.pad : 0;
  if (o.size > std::min(height, width) + 2 * pad)
    refuse(fmt::format("a crop of '{}' is larger than the image of '{}' x '{}' with padding '{}'", o.size,
                       height, width, pad),
           "lower data.size, or set data.resize");
  if (o.size) height = width = o.size;
  return {image.channels, height, width};
}

Transform::Transform(const TransformOptions& options, const ImageShape& image, const std::vector<float>& mean,
                     const std::vector<float>& std, bool train, uint64_t seed)
    : options_(options),
      image_(image),
      output_(data::output_shape(options, image, train)),
      train_(train),
      seed_(seed) {
  const std::vector<float> m = per_channel("mean", options.mean, mean, image.channels);
  const std::vector<float> s = per_channel("std", options.std, std, image.channels);
  for (size_t c = 0; c < m.size(); ++c) {
    if (!(s[c] > 0) || !std::isfinite(s[c]) || !std::isfinite(m[c]))
      refuse(fmt::format("channel '{}' has mean '{}' and std '{}'", c, m[c], s[c]),
             "data.std must be more than 0, and data.mean finite");
    std::array<float, 256> values;
    for (int x = 0; x < 256; ++x)
      values[static_cast<size_t>(x)] = static_cast<float>((x / 255.0 - double{m[c]}) / double{s[c]});
    table_.push_back(values);
    scale_.push_back(static_cast<float>(1 / (255.0 * double{s[c]})));
    shift_.push_back(static_cast<float>(-double{m[c]} / double{s[c]}));
  }
}

Transform::Scratch Transform::make_scratch() const {
  Scratch s;
  auto [picture_height, picture_width] = train_ && options_.random_resized_crop
                                             ? std::pair(options_.size, options_.size)
                                             : resized(image_, options_.resize);
  const int64_t height = output_[1], width = output_[2];
  s.rows.reserve(static_cast<size_t>(image_.height * image_.channels * width));
  s.first_y.reserve(static_cast<size_t>(height));
  s.first_x.reserve(static_cast<size_t>(width));
  s.weights_y.reserve(static_cast<size_t>(height * max_taps(image_.height, picture_height)));
  s.weights_x.reserve(static_cast<size_t>(width * max_taps(image_.width, picture_width)));
  return s;
}

Transform::View Transform::choose(uint64_t epoch, uint64_t row) const {
  RandomStream random({seed_, static_cast<uint32_t>(epoch), row, Purpose::augment, 0});
  View view{.height = image_.height, .width = image_.width};
  if (train_ && options_.random_resized_crop) {
    view.picture_height = view.picture_width = options_.size;
    const double area = static_cast<double>(image_.height * image_.width);
    const double low = std::log(options_.ratio_min), high = std::log(options_.ratio_max);
    bool found = false;
    for (int attempt = 0; attempt < 10 && !found; ++attempt) {
      const double part =
          area * (options_.scale_min + (options_.scale_max - options_.scale_min) * random.next_uniform());
      const double ratio = std::exp(low + (high - low) * random.next_uniform());
      view.width = std::lround(std::sqrt(part * ratio));
      view.height = std::lround(std::sqrt(part / ratio));
      found = 0 < view.width && view.width <= image_.width && 0 < view.height && view.height <= image_.height;
    }
    if (found) {
      view.top = random.next_below(static_cast<uint32_t>(image_.height - view.height + 1));
      view.left = random.next_below(static_cast<uint32_t>(image_.width - view.width + 1));
    } else {  // the largest centred part whose ratio is in range
      const double ratio = static_cast<double>(image_.width) / static_cast<double>(image_.height);
      view.width = image_.width, view.height = image_.height;
      if (ratio < options_.ratio_min)
        view.height = std::min<int64_t>(image_.height,
                                        std::lround(static_cast<double>(image_.width) / options_.ratio_min));
      else if (ratio > options_.ratio_max)
        view.width = std::min<int64_t>(image_.width,
                                       std::lround(static_cast<double>(image_.height) * options_.ratio_max));
      view.top = (image_.height - view.height) / 2;
      view.left = (image_.width - view.width) / 2;
    }
  } else {
    std::tie(view.picture_height, view.picture_width) = resized(image_, options_.resize);
    const int64_t pad = train_ ? options_.pad : 0;
    const int64_t spare_y = view.picture_height + 2 * pad - output_[1];
    const int64_t spare_x = view.picture_width + 2 * pad - output_[2];
    if (train_) {
      if (spare_y > 0) view.out_top = random.next_below(static_cast<uint32_t>(spare_y + 1)) - pad;
      if (spare_x > 0) view.out_left = random.next_below(static_cast<uint32_t>(spare_x + 1)) - pad;
    } else {  // torchvision's center_crop rounds half to even
      view.out_top = static_cast<int64_t>(std::nearbyint(static_cast<double>(spare_y) / 2));
      view.out_left = static_cast<int64_t>(std::nearbyint(static_cast<double>(spare_x) / 2));
    }
  }
  view.mirror = train_ && options_.flip && (random.next() & 1u);
  return view;
}

void Transform::apply(const uint8_t* image, uint64_t epoch, uint64_t row, float* out,
                      Scratch& scratch) const {
  const View view = choose(epoch, row);
  if (view.picture_height == view.height && view.picture_width == view.width)
    copy(image, view, out);
  else
    resample(image, view, out, scratch);
}

void Transform::copy(const uint8_t* image, const View& view, float* out) const {
  const int64_t channels = image_.channels, height = output_[1], width = output_[2];
  // Columns [from, to) of the output show the image; what is left and right of them is padding.
  const int64_t from = std::clamp<int64_t>(-view.out_left, 0, width);
  const int64_t to = std::clamp<int64_t>(view.picture_width - view.out_left, from, width);
  for (int64_t c = 0; c < channels; ++c) {
    const float* table = table_[static_cast<size_t>(c)].data();
    for (int64_t y = 0; y < height; ++y) {
      float* line = out + (c * height + y) * width;
      const int64_t source_y = view.out_top + y;
      if (source_y < 0 || source_y >= view.picture_height) {
        std::fill_n(line, width, table[0]);
        continue;
      }
      const uint8_t* source =
          image + ((view.top + source_y) * image_.width + view.left + view.out_left) * channels + c;
      if (!view.mirror) {
        std::fill_n(line, from, table[0]);
        for (int64_t x = from; x < to; ++x) line[x] = table[source[x * channels]];
        std::fill(line + to, line + width, table[0]);
      } else {
        std::fill_n(line, width - to, table[0]);
        for (int64_t x = from; x < to; ++x) line[width - 1 - x] = table[source[x * channels]];
        std::fill(line + width - from, line + width, table[0]);
      }
    }
  }
}

void Transform::resample(const uint8_t* image, const View& view, float* out, Scratch& s) const {
  const int64_t channels = image_.channels, height = output_[1], width = output_[2];
  // With padding the part of the output that shows the picture is smaller than the output.
  const int64_t y0 = std::clamp<int64_t>(-view.out_top, 0, height);
  const int64_t y1 = std::clamp<int64_t>(view.picture_height - view.out_top, y0, height);
  const int64_t x0 = std::clamp<int64_t>(-view.out_left, 0, width);
  const int64_t x1 = std::clamp<int64_t>(view.picture_width - view.out_left, x0, width);
  const int64_t shown = x1 - x0, left = view.mirror ? width - x1 : x0;
  const int64_t taps_y =
      make_taps(view.height, view.picture_height, view.out_top + y0, y1 - y0, false, s.first_y, s.weights_y);
  const int64_t taps_x = make_taps(view.width, view.picture_width, view.out_left + x0, shown, view.mirror,
                                   s.first_x, s.weights_x);
  if (shown < width || y1 - y0 < height)
    for (int64_t c = 0; c < channels; ++c)
      std::fill_n(out + c * height * width, height * width, table_[static_cast<size_t>(c)][0]);

  // Along x first, for the rows that are needed: rows is f32 [row, C, shown].
  const int64_t first_row = y1 > y0 ? s.first_y.front() : 0;
  const int64_t end_row = y1 > y0 ? s.first_y.back() + taps_y : 0;
  s.rows.resize(static_cast<size_t>((end_row - first_row) * channels * shown));
  for (int64_t r = first_row; r < end_row; ++r) {
    const uint8_t* source = image + ((view.top + r) * image_.width + view.left) * channels;
    float* line = s.rows.data() + (r - first_row) * channels * shown;
    for (int64_t x = 0; x < shown; ++x) {
      const uint8_t* pixel = source + s.first_x[static_cast<size_t>(x)] * channels;
      const float* w = &s.weights_x[static_cast<size_t>(x * taps_x)];
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int64_t t = 0; t < taps_x; ++t) sum += w[t] * static_cast<float>(pixel[t * channels + c]);
        line[c * shown + x] = sum;
      }
    }
  }
  for (int64_t y = y0; y < y1; ++y) {
    const float* w = &s.weights_y[static_cast<size_t>((y - y0) * taps_y)];
    const int64_t row = s.first_y[static_cast<size_t>(y - y0)] - first_row;
    for (int64_t c = 0; c < channels; ++c) {
      const size_t ch = static_cast<size_t>(c);
      float* line = out + (c * height + y) * width + left;
      std::fill_n(line, shown, shift_[ch]);
      for (int64_t t = 0; t < taps_y; ++t) {
        const float weight = w[t] * scale_[ch];
        const float* source = s.rows.data() + ((row + t) * channels + c) * shown;
        for (int64_t x = 0; x < shown; ++x) line[x] += weight * source[x];
      }
    }
  }
}

}  // namespace lockstep::data
