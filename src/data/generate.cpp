#include "data/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace lockstep::data {
namespace {

constexpr int64_t kGrid = 5;  // random values along a side of a pattern; between them it is interpolated
enum GenerateUser : uint32_t { kPattern = 0, kTrainSample = 1, kEvalSample = 2 };

void require(bool ok, const char* option, int64_t value, const char* range) {
  if (!ok)
    throw UserError(fmt::format("option '--{}' cannot be '{}'", option, value),
                    fmt::format("it is {}", range), "give another value");
}

}  // namespace

Generator::Generator(const GenerateOptions& o) : options_(o) {
  require(o.num_samples >= 1, "samples", o.num_samples, "at least '1'");
  require(o.classes >= 1 && o.classes <= 100000, "classes", o.classes, "'1' to '100000'");
  require(o.size >= 4 && o.size <= 4096, "size", o.size, "'4' to '4096'");
  require(o.channels >= 1 && o.channels <= 4, "channels", o.channels, "'1' to '4'");
  const int64_t size = o.size;
  patterns_.resize(static_cast<size_t>(o.classes * o.channels * size * size));
  float* out = patterns_.data();
  for (int64_t plane = 0; plane < o.classes * o.channels; ++plane) {
    RandomStream random({o.seed, 0, static_cast<uint64_t>(plane), Purpose::generate, kPattern});
    float grid[kGrid][kGrid];
    for (auto& line : grid)
      for (float& value : line) value = 2 * random.next_uniform() - 1;
    for (int64_t y = 0; y < size; ++y)
      for (int64_t x = 0; x < size; ++x) {
        const float gy = static_cast<float>(y * kGrid) / static_cast<float>(size);
        const float gx = static_cast<float>(x * kGrid) / static_cast<float>(size);
        const int64_t y0 = static_cast<int64_t>(gy), x0 = static_cast<int64_t>(gx);
        const int64_t y1 = (y0 + 1) % kGrid, x1 = (x0 + 1) % kGrid;
        const float fy = gy - static_cast<float>(y0), fx = gx - static_cast<float>(x0);
        *out++ = (1 - fy) * ((1 - fx) * grid[y0][x0] + fx * grid[y0][x1]) +
                 fy * ((1 - fx) * grid[y1][x0] + fx * grid[y1][x1]);
      }
  }
}

void Generator::image(uint64_t sample, uint8_t* out) {
  const int64_t size = options_.size, channels = options_.channels;
  RandomStream random(
      {options_.seed, 0, sample, Purpose::generate, options_.eval ? kEvalSample : kTrainSample});
  const uint32_t reach = static_cast<uint32_t>(std::max<int64_t>(size / 8, 1));
  const int64_t dy = random.next_below(2 * reach + 1) + size - reach,
                dx = random.next_below(2 * reach + 1) + size - reach;
  const float contrast = 0.6f + 0.6f * random.next_uniform();
  const int64_t other = random.next_below(static_cast<uint32_t>(options_.classes));
  const float under = 0.5f * random.next_uniform();
  const float brightness = 108 + 40 * random.next_uniform();
  const int64_t plane = size * size;
  for (int64_t y = 0; y < size; ++y) {
    const int64_t sy = (y + dy) % size;
    for (int64_t x = 0; x < size; ++x) {
      const int64_t sx = (x + dx) % size;
      for (int64_t c = 0; c < channels; ++c) {
        const float own =
            patterns_[static_cast<size_t>((label(sample) * channels + c) * plane + sy * size + sx)];
        const float mixed = patterns_[static_cast<size_t>((other * channels + c) * plane + y * size + x)];
        const uint32_t word = random.next();  // four bytes added up: near enough to a normal distribution
        const int noise =
            static_cast<int>((word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + (word >> 24));
        const float value =
            brightness + 90 * (contrast * own + under * mixed) + 0.25f * static_cast<float>(noise - 510);
        *out++ = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
      }
    }
  }
}

void generate_file(const std::string& path, const GenerateOptions& o, const std::string& made_by,
                   IfExists if_exists, const OnProgress& progress) {
  std::error_code hidden;
  if (if_exists == IfExists::keep && std::filesystem::exists(path, hidden)) return;
  Generator generator(o);
  WriterOptions writer_options{.num_samples = o.num_samples,
                               .image = {o.size, o.size, o.channels},
                               .compress = o.compress,
                               .shuffle_seed = o.seed,
                               .made_by = made_by,
                               .if_exists = if_exists};
  for (int64_t c = 0; c < o.classes; ++c) writer_options.class_names.push_back(fmt::format("pattern {}", c));
  ClassificationWriter writer(path, writer_options);
  std::vector<uint8_t> image(static_cast<size_t>(o.size * o.size * o.channels));
  for (int64_t i = 0; i < o.num_samples; ++i) {
    const uint64_t sample = writer.source_row(static_cast<uint64_t>(i));
    generator.image(sample, image.data());
    writer.append(image.data(), generator.label(sample));
    if (progress) progress(1);
  }
  writer.commit();
}

}  // namespace lockstep::data
