#include "data/classification_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <new>
#include <optional>

#include "core/error.h"
#include "core/hash.h"
#include "data/chunk_reader.h"
#include "data/hdf5_file.h"

namespace lockstep::data {
namespace {

constexpr const char* kSeeFormat = "docs/data-format.md says what a data file holds";
/// Decoded chunks that an order's window may hold; as many again are kept for the window before and after.
constexpr int64_t kWindowBytes = int64_t{8} << 20;
/// More classes than this are believed where there are as many samples, or names. Real sets of that many
/// have some samples of each; one damaged label would make a model that no memory holds.
constexpr int64_t kMaxUnnamedClasses = int64_t{1} << 20;
constexpr double kVersion = 1;
/// What is read at a time for the content hash: large for the disk, small for the cache.
constexpr int64_t kHashBytes = int64_t{1} << 20;

/// All labels, whole and not negative. Throws UserError naming the row.
std::vector<int32_t> read_labels(const std::string& path, const Hdf5Dataset& set) {
  const int64_t n = set.shape()[0];
  auto refuse = [&](int64_t row, const std::string& value, const std::string& why) {
    throw UserError(fmt::format("label '{}' in row '{}' of data set '{}' in file '{}' is {}", value, row,
                                set.name(), path, why),
                    "a label is the number of a class, counted from 0", "correct the labels in the file");
  };
  std::vector<int32_t> labels(static_cast<size_t>(n));
  constexpr int64_t kBlock = 1 << 20;
  auto convert = [&]<class T>(Dtype as, T) {
    std::vector<T> block(static_cast<size_t>(std::min(n, kBlock)));
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t count = std::min(kBlock, n - first);
      set.read_rows(first, count, as, block.data());
      for (int64_t i = 0; i < count; ++i) {
        const T value = block[static_cast<size_t>(i)];
        if constexpr (std::is_floating_point_v<T>)
          if (!(std::floor(value) == value))
            refuse(first + i, fmt::format("{}", value), "not a whole number");
        if (value < 0) refuse(first + i, fmt::format("{}", value), "negative");
        if (value > static_cast<T>(std::numeric_limits<int32_t>::max() - 1))
          refuse(first + i, fmt::format("{}", value), "too large");
        labels[static_cast<size_t>(first + i)] = static_cast<int32_t>(value);
      }
    }
  };
  if (set.type().kind == ElementType::Kind::floating)
    convert(Dtype::f64, double{});
  else if (set.type().kind == ElementType::Kind::unsigned_integer)
    convert(Dtype::u64, uint64_t{});
  else if (set.type().kind == ElementType::Kind::signed_integer)
    convert(Dtype::i64, int64_t{});
  else
    throw UserError(fmt::format("data set '{}' in file '{}' has elements that are {}", set.name(), path,
                                set.type().text()),
                    "labels are integers, or floats that hold whole numbers", kSeeFormat);
  return labels;
}

}  // namespace

struct ClassificationSet::Impl {
  explicit Impl(const std::string& path) : file(path), bytes(path) {}
  Hdf5File file;
  PosixFile bytes;
  std::unique_ptr<Hdf5Dataset> images;
  std::unique_ptr<ChunkReader> chunks;  // null unless chunks are decoded here
  int64_t contiguous_offset = -1;
  ImageShape image;
  int64_t num_samples = 0, num_classes = 0, chunk_rows = 0, window_chunks = 1;
  std::string layout;
  std::vector<std::string> class_names;
  std::vector<float> mean, std;
  std::vector<int32_t> labels;
  std::optional<std::string> stored_hash;
  std::once_flag hashed;
  std::string computed_hash;

  void require_version() const;
  void open_images();
  void require_num_samples() const;
  void open_labels();
  void choose_path();
  void read(int64_t first, int64_t count, uint8_t* out) const;
  uint64_t compute_hash(const OnProgress& progress) const;
  std::vector<float> channel_attribute(const std::string& name, float missing);
};

void ClassificationSet::Impl::require_version() const {
  const auto version = file.numbers("version");
  if (!version || version->size() != 1 || (*version)[0] == kVersion) return;
  if (file.string("format").value_or("lockstep") != "lockstep") return;  // somebody else's version
  throw UserError(fmt::format("file '{}' has version '{}' of the format", file.path(), (*version)[0]),
                  fmt::format("this program reads version '{}'", kVersion),
                  "use the program that wrote it, or make the file again");
}

void ClassificationSet::Impl::require_num_samples() const {
  const auto count = file.numbers("num_samples");
  if (!count || count->size() != 1 || (*count)[0] == static_cast<double>(num_samples)) return;
  throw UserError(fmt::format("attribute 'num_samples' in file '{}' is '{}'", file.path(), (*count)[0]),
                  fmt::format("data set '/images' has '{}' rows", num_samples), "make the file again");
}

void ClassificationSet::Impl::open_images() {
  images = std::make_unique<Hdf5Dataset>(file.dataset("/images", 4));
  const Shape& shape = images->shape();
  if (const ElementType& type = images->type();
      type.kind != ElementType::Kind::unsigned_integer || type.bytes != 1)
    throw UserError(
        fmt::format("data set '/images' in file '{}' has elements of type '{}'", file.path(), type.text()),
        "images are stored as 'u8', 0 to 255; mean and std are applied on loading",
        "convert the images to 'u8' (for values in [0, 1]: round(x * 255))");
  if (shape[1] <= 4 && shape[3] > 4 && shape[2] > 4)
    throw UserError(
        fmt::format("data set '/images' of shape '{}' in file '{}' seems to have its channels first",
                    shape.text(), file.path()),
        "images are stored as '[N, H, W, C]'", "transpose the images (numpy: x.transpose(0, 2, 3, 1))");
  num_samples = shape[0];
  image = {shape[1], shape[2], shape[3]};
  if (num_samples == 0 || image.bytes() == 0)
    throw UserError(fmt::format("data set '/images' in file '{}' holds no samples", file.path()),
                    fmt::format("its shape is '{}'", shape.text()), "write at least one image");
}

void ClassificationSet::Impl::open_labels() {
  const Hdf5Dataset set = file.dataset("/labels", 1);
  if (set.shape()[0] != num_samples)
    throw UserError(
        fmt::format("file '{}' has '{}' images and '{}' labels", file.path(), num_samples, set.shape()[0]),
        "each image needs one label", "make the file again");
  set.require_stored();
  labels = read_labels(file.path(), set);
  if (auto names = file.strings("class_names")) class_names = *names;
  if (class_names.empty()) {
    const auto largest = std::max_element(labels.begin(), labels.end());
    num_classes = *largest + int64_t{1};
    if (num_classes > std::max(kMaxUnnamedClasses, num_samples))
      throw UserError(
          fmt::format("label '{}' in row '{}' of data set '/labels' in file '{}' would make '{}' classes",
                      *largest, largest - labels.begin(), file.path(), num_classes),
          fmt::format("the file has '{}' samples, and no attribute 'class_names' that names so many",
                      num_samples),
          "correct the label, or write 'class_names'");
    return;
  }
  num_classes = static_cast<int64_t>(class_names.size());
  auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](int32_t label) { return label >= num_classes; });
  if (wrong != labels.end())
    throw UserError(fmt::format("label '{}' in row '{}' of data set '/labels' in file '{}' is out of range",
                                *wrong, wrong - labels.begin(), file.path()),
                    fmt::format("the attribute 'class_names' names '{}' classes: labels are '0' to '{}'",
                                num_classes, num_classes - 1),
                    "correct the labels or the class names");
}

void ClassificationSet::Impl::choose_path() {
  const StorageLayout& stored = images->layout();
  const bool contiguous = stored.kind == StorageLayout::Kind::contiguous;
  if (contiguous && stored.offset >= 0 && stored.linked_file.empty()) {
    contiguous_offset = stored.offset;
    layout = "contiguous (pread)";
    return;
  }
  std::string obstacle = stored.kind == StorageLayout::Kind::chunked ? chunk_obstacle(*images)
                         : !stored.linked_file.empty()
                             ? fmt::format("linked from file '{}'", stored.linked_file)
                         : contiguous ? "external or unwritten storage"
                                      : "compact or virtual storage";
  const int64_t rows =
      stored.kind == StorageLayout::Kind::chunked ? std::min(stored.chunk[0], num_samples) : 1;
  int64_t cached = 2;
  if (rows > 1) {
    chunk_rows = rows;
    const int64_t chunk_count = (num_samples + rows - 1) / rows;
    window_chunks = std::clamp<int64_t>(kWindowBytes / (rows * image.bytes()), 1, chunk_count);
    cached = 2 * window_chunks;
  }
  if (obstacle.empty()) {
    std::string filters;
    for (const Filter& filter : stored.filters) filters += (filters.empty() ? ", " : " + ") + filter.name;
    chunks = std::make_unique<ChunkReader>(file.path(), *images, static_cast<size_t>(cached));
    layout = fmt::format("chunks of {} rows{} (decoded by our threads{})", stored.chunk[0], filters,
                         chunks->indexed() ? "" : ", found by the HDF5 library");
    return;
  }
  layout = "through the HDF5 library: " + obstacle;
  if (chunk_rows > 0) {  // the library's cache takes effect on a fresh open only
    images.reset();
    images = std::make_unique<Hdf5Dataset>(
        file.dataset("/images", 4, static_cast<size_t>(cached * chunk_rows * image.bytes())));
  }
}

std::vector<float> ClassificationSet::Impl::channel_attribute(const std::string& name, float missing) {
  const auto values = file.numbers(name);
  if (!values) return std::vector<float>(static_cast<size_t>(image.channels), missing);
  if (static_cast<int64_t>(values->size()) != image.channels)
    throw UserError(
        fmt::format("attribute '{}' in file '{}' has '{}' values", name, file.path(), values->size()),
        fmt::format("the images have '{}' channels", image.channels), kSeeFormat);
  return std::vector<float>(values->begin(), values->end());
}

ClassificationSet::ClassificationSet(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  if (auto task = impl_->file.string("task"); task && *task != "classification")
    throw UserError(fmt::format("file '{}' is for the task '{}'", path, *task),
                    "this model needs 'classification'", "name a classification file");
  impl_->require_version();
  impl_->open_images();
  impl_->require_num_samples();
  try {
    impl_->open_labels();
  } catch (const std::bad_alloc&) {
    throw UserError(fmt::format("the labels of file '{}' do not fit in memory", path),
                    fmt::format("its data sets claim '{}' samples", impl_->num_samples),
                    "check the file, or split it");
  }
  impl_->mean = impl_->channel_attribute("mean", 0.0f);
  impl_->std = impl_->channel_attribute("std", 1.0f);
  impl_->choose_path();
  impl_->stored_hash = impl_->file.string("content_xxh3");
}

ClassificationSet::~ClassificationSet() = default;
ClassificationSet::ClassificationSet(ClassificationSet&&) noexcept = default;
ClassificationSet& ClassificationSet::operator=(ClassificationSet&&) noexcept = default;

const std::string& ClassificationSet::path() const { return impl_->file.path(); }
int64_t ClassificationSet::num_samples() const { return impl_->num_samples; }
const ImageShape& ClassificationSet::image() const { return impl_->image; }
int64_t ClassificationSet::num_classes() const { return impl_->num_classes; }
const std::vector<std::string>& ClassificationSet::class_names() const { return impl_->class_names; }
const std::vector<float>& ClassificationSet::mean() const { return impl_->mean; }
const std::vector<float>& ClassificationSet::std() const { return impl_->std; }
std::span<const int32_t> ClassificationSet::labels() const { return impl_->labels; }
const std::string& ClassificationSet::layout() const { return impl_->layout; }
int64_t ClassificationSet::chunk_rows() const { return impl_->chunk_rows; }
int64_t ClassificationSet::window_chunks() const { return impl_->window_chunks; }

void ClassificationSet::read(uint64_t row, uint8_t* out) const {
  impl_->read(static_cast<int64_t>(row), 1, out);
}

void ClassificationSet::Impl::read(int64_t first, int64_t count, uint8_t* out) const {
  const int64_t row_bytes = image.bytes();
  if (contiguous_offset >= 0)
    bytes.read(static_cast<uint64_t>(contiguous_offset + first * row_bytes),
               {out, static_cast<size_t>(count * row_bytes)});
  else if (chunks)
    for (int64_t i = 0; i < count; ++i) chunks->read(static_cast<uint64_t>(first + i), out + i * row_bytes);
  else
    images->read_rows(first, count, Dtype::u8, out);
}

bool ClassificationSet::has_stored_hash() const { return impl_->stored_hash.has_value(); }

std::string ClassificationSet::content_hash(const OnProgress& progress) const {
  if (impl_->stored_hash) return *impl_->stored_hash;
  std::call_once(impl_->hashed, [&] { impl_->computed_hash = hex64(impl_->compute_hash(progress)); });
  return impl_->computed_hash;
}

uint64_t ClassificationSet::Impl::compute_hash(const OnProgress& progress) const {
  Xxh3Stream hash;
  const int64_t row_bytes = image.bytes(), rows = std::clamp<int64_t>(kHashBytes / row_bytes, 1, num_samples);
  std::vector<uint8_t> block(static_cast<size_t>(rows * row_bytes));
  for (int64_t first = 0; first < num_samples; first += rows) {
    const int64_t count = std::min(rows, num_samples - first);
    read(first, count, block.data());
    hash.update(block.data(), static_cast<size_t>(count * row_bytes));
    if (progress) progress(static_cast<uint64_t>(count));
  }
  hash.update(labels.data(), labels.size() * sizeof(int32_t));
  return hash.digest();
}

Order make_order(const ClassificationSet& set, int64_t global_batch, uint64_t seed, bool shuffle,
                 bool drop_last) {
  return {.num_samples = set.num_samples(),
          .global_batch = global_batch,
          .seed = seed,
          .drop_last = drop_last,
          .shuffle = shuffle,
          .chunk_rows = set.chunk_rows(),
          .window_chunks = set.window_chunks()};
}

}  // namespace lockstep::data
