#include "data/writer.h"

#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "data/hdf5_handle.h"
#include "data/partial_file.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kWriterShuffle = 3;  // RandomKey::op among the users of Purpose::shuffle (order.cpp)
constexpr int64_t kMaxChunks = 8000;    // listing chunks is quadratic in HDF5 1.10
constexpr int64_t kChunkBytes = 256 << 10, kBlockBytes = 1 << 20;
constexpr unsigned kDeflateLevel = 6;

[[noreturn]] void refuse_existing(const std::string& path, const std::string& why) {
  throw UserError(fmt::format("file '{}' exists", path), why, "choose another name, or give --force");
}

}  // namespace

int64_t rows_per_chunk(int64_t num_samples, const ImageShape& image) {
  const int64_t rows = std::max<int64_t>(kChunkBytes / image.bytes(), 1);
  const int64_t least = (num_samples + kMaxChunks - 2) / (kMaxChunks - 1);
  return std::min(std::max(rows, least), num_samples);
}

struct ClassificationWriter::Impl {
  Impl(const std::string& path, const WriterOptions& options);
  ~Impl();

  void create();

  /// Throws unless `ok`, with the reason that the library gives.
  void check(bool ok, const std::string& what) const;
  Hdf5Handle create_dataset(const std::string& name, const std::vector<hsize_t>& shape, hid_t type,
                            bool chunked);
  void write_rows(hid_t dataset, hid_t type, int64_t first, int64_t count, const void* rows,
                  const std::string& name);
  void flush();
  void attribute(const std::string& name, hid_t type, std::span<const hsize_t> dims, const void* value);
  void text_attribute(const std::string& name, const std::string& value);
  void number_attributes();

  std::string path;
  WriterOptions options;
  Permutation shuffle;
  std::optional<PartialFile> partial;  // none again once it was published or dropped
  Hdf5Handle file, images;
  int64_t block_rows = 1, written = 0;
  std::vector<uint8_t> block;                 // rows not yet written
  std::vector<int32_t> labels;                // all so far
  std::vector<uint64_t> checksums;            // likewise
  std::vector<uint64_t> sum, sum_of_squares;  // by channel: exact, so that the order of samples is no matter
  Xxh3Stream hash;
};

ClassificationWriter::Impl::Impl(const std::string& p, const WriterOptions& o)
    : path(p),
      options(o),
      shuffle(static_cast<uint64_t>(o.num_samples), {o.shuffle_seed, 0, 0, Purpose::shuffle, kWriterShuffle}),
      sum(static_cast<size_t>(o.image.channels)),
      sum_of_squares(static_cast<size_t>(o.image.channels)) {}

/// Apart from the constructor, so that the destructor cleans up when it fails.
void ClassificationWriter::Impl::create() {
  const WriterOptions& o = options;
  if (o.num_samples < 1 || o.image.bytes() < 1 || o.class_names.empty())
    throw UserError(fmt::format("file '{}' would hold no samples", path),
                    fmt::format("'{}' images of '{}' x '{}' x '{}', '{}' classes", o.num_samples,
                                o.image.height, o.image.width, o.image.channels, o.class_names.size()),
                    "give at least one image and one class");
  std::error_code hidden;
  if (o.if_exists == IfExists::refuse &&
      std::filesystem::exists(std::filesystem::symlink_status(path, hidden)))
    refuse_existing(path, "it is not overwritten silently");
  partial.emplace(path);
  Hdf5Lock lock;
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  // 1.8's format: attributes may be larger than 64 KiB (many class names), and old readers still know it.
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  H5Pset_alignment(access.get(),
                   static_cast<hsize_t>(std::min<int64_t>(4096, o.num_samples * o.image.bytes())), 4096);
  H5Pset_file_locking(access.get(), false, true);  // on network file systems it would meet the partial file's
  H5Pset_obj_track_times(creation.get(), false);   // the same command gives the same bytes
  file =
      Hdf5Handle(H5Fcreate(partial->path().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  check(static_cast<bool>(file), "cannot be written");
  const ImageShape& image = o.image;
  images = create_dataset("images",
                          {static_cast<hsize_t>(o.num_samples), static_cast<hsize_t>(image.height),
                           static_cast<hsize_t>(image.width), static_cast<hsize_t>(image.channels)},
                          H5T_STD_U8LE, o.compress);
  block_rows = o.compress ? rows_per_chunk(o.num_samples, image)
                          : std::clamp<int64_t>(kBlockBytes / image.bytes(), 1, o.num_samples);
  block.reserve(static_cast<size_t>(block_rows * image.bytes()));
}

/// Emptying the file first gives its space back, so that closing it works on a full disk too.
ClassificationWriter::Impl::~Impl() {
  if (partial) {
    [[maybe_unused]] const int emptied = ::truncate(partial->path().c_str(), 0);
  }
  images.reset();
  file.reset();
}

void ClassificationWriter::Impl::check(bool ok, const std::string& what) const {
  if (!ok)
    throw UserError(fmt::format("file '{}' {}", path, what), hdf5_error(),
                    "free some space or choose another disk; nothing was left behind");
}

Hdf5Handle ClassificationWriter::Impl::create_dataset(const std::string& name,
                                                      const std::vector<hsize_t>& shape, hid_t type,
                                                      bool chunked) {
  Hdf5Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);
  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER);
  if (chunked) {
    std::vector<hsize_t> chunk = shape;
    chunk[0] = static_cast<hsize_t>(rows_per_chunk(options.num_samples, options.image));
    H5Pset_chunk(list.get(), static_cast<int>(chunk.size()), chunk.data());
    H5Pset_shuffle(list.get());
    H5Pset_deflate(list.get(), kDeflateLevel);
    H5Pset_fletcher32(list.get());
  } else {
    H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY);
  }
  Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  if (chunked) H5Pset_chunk_cache(access.get(), 0, 0, 0);  // whole chunks go straight to the file
  Hdf5Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose);
  Hdf5Handle set(
      H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, list.get(), access.get()),
      H5Dclose);
  check(static_cast<bool>(set), fmt::format("cannot take data set '/{}'", name));
  return set;
}

void ClassificationWriter::Impl::write_rows(hid_t dataset, hid_t type, int64_t first, int64_t count,
                                            const void* rows, const std::string& name) {
  Hdf5Lock lock;
  Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  std::array<hsize_t, 4> start{}, size{};
  const int rank = H5Sget_simple_extent_dims(space.get(), size.data(), nullptr);
  start[0] = static_cast<hsize_t>(first);
  size[0] = static_cast<hsize_t>(count);
  Hdf5Handle memory(H5Screate_simple(rank, size.data(), nullptr), H5Sclose);
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr);
  check(H5Dwrite(dataset, type, memory.get(), space.get(), H5P_DEFAULT, rows) >= 0,
        fmt::format("cannot take rows '{}' to '{}' of data set '/{}'", first, first + count - 1, name));
}

void ClassificationWriter::Impl::flush() {
  const int64_t rows = static_cast<int64_t>(block.size()) / options.image.bytes();
  if (rows > 0) write_rows(images.get(), H5T_NATIVE_UINT8, written, rows, block.data(), "images");
  written += rows;
  block.clear();
}

void ClassificationWriter::Impl::attribute(const std::string& name, hid_t type, std::span<const hsize_t> dims,
                                           const void* value) {
  Hdf5Handle space(dims.empty() ? H5Screate(H5S_SCALAR)
                                : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                   H5Sclose);
  Hdf5Handle id(H5Acreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  check(id && H5Awrite(id.get(), type, value) >= 0, fmt::format("cannot take attribute '{}'", name));
}

static Hdf5Handle text_type() {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

void ClassificationWriter::Impl::text_attribute(const std::string& name, const std::string& value) {
  const char* text = value.c_str();
  attribute(name, text_type().get(), {}, &text);
}

void ClassificationWriter::Impl::number_attributes() {
  const int64_t version = 1;
  attribute("version", H5T_NATIVE_INT64, {}, &version);
  attribute("num_samples", H5T_NATIVE_INT64, {}, &options.num_samples);
  attribute("shuffle_seed", H5T_NATIVE_UINT64, {}, &options.shuffle_seed);
  std::vector<float> mean, std;
  const double pixels = static_cast<double>(options.num_samples) *
                        static_cast<double>(options.image.height * options.image.width);
  for (size_t c = 0; c < sum.size(); ++c) {
    const double m = static_cast<double>(sum[c]) / pixels;
    const double variance = static_cast<double>(sum_of_squares[c]) / pixels - m * m;
    mean.push_back(static_cast<float>(m / 255));
    std.push_back(variance > 0 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0f);
  }
  const hsize_t channels = mean.size();
  attribute("mean", H5T_NATIVE_FLOAT, {&channels, 1}, mean.data());
  attribute("std", H5T_NATIVE_FLOAT, {&channels, 1}, std.data());
}

ClassificationWriter::ClassificationWriter(const std::string& path, const WriterOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {
  impl_->create();
}

ClassificationWriter::~ClassificationWriter() = default;

uint64_t ClassificationWriter::source_row(uint64_t stored) const { return impl_->shuffle(stored); }

void ClassificationWriter::append(const uint8_t* image, int64_t label) {
  Impl& im = *impl_;
  const size_t bytes = static_cast<size_t>(im.options.image.bytes()), row = im.labels.size();
  if (row >= static_cast<size_t>(im.options.num_samples))
    throw std::logic_error("ClassificationWriter: too many rows");
  const int64_t classes = static_cast<int64_t>(im.options.class_names.size());
  if (label < 0 || label >= classes)
    throw UserError(fmt::format("label '{}' of input sample '{}' is out of range", label, source_row(row)),
                    fmt::format("there are '{}' classes: labels are '0' to '{}'", classes, classes - 1),
                    "correct the labels, or name all classes");
  im.labels.push_back(static_cast<int32_t>(label));
  im.hash.update(image, bytes);
  Xxh3Stream row_hash;
  row_hash.update(image, bytes);
  row_hash.update(&im.labels.back(), sizeof(int32_t));
  im.checksums.push_back(row_hash.digest());
  const size_t channels = im.sum.size();
  for (size_t c = 0; c < channels; ++c) {
    uint64_t sum = 0, squares = 0;
    for (size_t i = c; i < bytes; i += channels) {
      sum += image[i];
      squares += uint32_t{image[i]} * image[i];
    }
    im.sum[c] += sum;
    im.sum_of_squares[c] += squares;
  }
  im.block.insert(im.block.end(), image, image + bytes);
  if (im.block.size() >= static_cast<size_t>(im.block_rows) * bytes) im.flush();
}

void ClassificationWriter::commit() {
  Impl& im = *impl_;
  if (im.labels.size() != static_cast<size_t>(im.options.num_samples))
    throw std::logic_error("ClassificationWriter: rows are missing");
  im.flush();
  Hdf5Lock lock;
  const hsize_t n = im.labels.size();
  Hdf5Handle labels = im.create_dataset("labels", {n}, H5T_STD_I32LE, false);
  im.write_rows(labels.get(), H5T_NATIVE_INT32, 0, im.options.num_samples, im.labels.data(), "labels");
  Hdf5Handle checksums = im.create_dataset("checksums", {n}, H5T_STD_U64LE, false);
  im.write_rows(checksums.get(), H5T_NATIVE_UINT64, 0, im.options.num_samples, im.checksums.data(),
                "checksums");
  im.hash.update(im.labels.data(), im.labels.size() * sizeof(int32_t));
  im.text_attribute("format", "lockstep");
  im.text_attribute("task", "classification");
  im.text_attribute("content_xxh3", hex64(im.hash.digest()));
  im.text_attribute("made_by", im.options.made_by);
  std::vector<const char*> names;
  for (const std::string& name : im.options.class_names) names.push_back(name.c_str());
  const hsize_t classes = names.size();
  im.attribute("class_names", text_type().get(), {&classes, 1}, names.data());
  im.number_attributes();

  im.check(H5Fflush(im.file.get(), H5F_SCOPE_GLOBAL) >= 0, "cannot be completed");
  labels.reset();
  checksums.reset();
  im.images.reset();
  im.check(im.file.reset(), "cannot be closed");
  const bool published = im.partial->publish(im.options.if_exists == IfExists::replace);
  im.partial.reset();
  if (!published && im.options.if_exists == IfExists::refuse)
    refuse_existing(im.path, "another process wrote it while this one was at work");
}

}  // namespace lockstep::data
