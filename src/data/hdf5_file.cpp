#include "data/hdf5_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/posix_file.h"

namespace lockstep::data {
namespace {

/// The superblock's end-of-file address, or nullopt where `file` has no HDF5 signature (HDF5 File Format
/// Specification 3.0, II.A: at byte 0, 512, 1024, 2048, ...).
std::optional<uint64_t> stored_end_of_file(const PosixFile& file) {
  constexpr std::array<uint8_t, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const uint64_t size = file.size();
  for (uint64_t at = 0; at + 96 <= size; at = at ? at * 2 : 512) {
    std::array<uint8_t, 96> head;
    file.read(at, head);
    if (!std::equal(kSignature.begin(), kSignature.end(), head.begin())) continue;
    const int version = head[8];
    const size_t width = version < 2 ? head[13] : head[9];
    const size_t addresses = version == 0   ? 24
                             : version == 1 ? 28
                                            : 12;  // base, (free space | extension), end
    const size_t end = addresses + 2 * width;
    uint64_t value = 0;
    if (width <= 8) std::memcpy(&value, &head[end], width);
    return value;
  }
  return std::nullopt;
}

ElementType describe(hid_t type) {
  ElementType t;
  t.bytes = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_INTEGER)
    t.kind = H5Tget_sign(type) == H5T_SGN_NONE ? ElementType::Kind::unsigned_integer
                                               : ElementType::Kind::signed_integer;
  else if (kind == H5T_FLOAT)
    t.kind = ElementType::Kind::floating;
  t.big_endian = t.bytes > 1 && t.kind != ElementType::Kind::other && H5Tget_order(type) == H5T_ORDER_BE;
  return t;
}

StorageLayout describe_layout(hid_t dataset) {
  StorageLayout layout;
  Hdf5Handle list(H5Dget_create_plist(dataset), H5Pclose);
  switch (H5Pget_layout(list.get())) {
    case H5D_CONTIGUOUS: {
      layout.kind = StorageLayout::Kind::contiguous;
      const haddr_t offset = H5Dget_offset(dataset);
      if (offset != HADDR_UNDEF) layout.offset = static_cast<int64_t>(offset);
      break;
    }
    case H5D_CHUNKED: {
      layout.kind = StorageLayout::Kind::chunked;
      std::array<hsize_t, H5S_MAX_RANK> dims;
      const int rank = H5Pget_chunk(list.get(), static_cast<int>(dims.size()), dims.data());
      std::vector<int64_t> sizes(dims.begin(), dims.begin() + rank);
      layout.chunk = Shape(std::span<const int64_t>(sizes));
      for (int i = 0; i < H5Pget_nfilters(list.get()); ++i) {
        std::array<char, 64> name{};
        unsigned flags = 0;
        size_t values = 0;
        const H5Z_filter_t id = H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags, &values, nullptr,
                                               name.size(), name.data(), nullptr);
        layout.filters.push_back({id, name.data()});
      }
      break;
    }
    default:
      break;
  }
  return layout;
}

hid_t memory_type(Dtype t) {
  switch (t) {
    case Dtype::u8:
      return H5T_NATIVE_UINT8;
    case Dtype::i32:
      return H5T_NATIVE_INT32;
    case Dtype::i64:
      return H5T_NATIVE_INT64;
    case Dtype::u64:
      return H5T_NATIVE_UINT64;
    case Dtype::f32:
      return H5T_NATIVE_FLOAT;
    default:
      return H5T_NATIVE_DOUBLE;
  }
}

}  // namespace

std::string ElementType::text() const {
  const char* letter = kind == Kind::unsigned_integer ? "u" : kind == Kind::signed_integer ? "i" : "f";
  if (kind == Kind::other) return "neither integer nor float";
  return fmt::format("{}{}{}", big_endian ? "big-endian " : "", letter, bytes * 8);
}

void Hdf5Dataset::fail(const std::string& what) const {
  throw UserError(fmt::format("{} of data set '{}' in file '{}' cannot be read", what, name_, path_),
                  "HDF5: " + hdf5_error(), "check the file with 'datatool verify' or copy it again");
}

void Hdf5Dataset::read_rows(int64_t first, int64_t count, Dtype as, void* out) const {
  Hdf5Lock lock;
  std::array<hsize_t, Shape::kMaxRank> start{}, size{};
  std::copy(shape_.begin(), shape_.end(), size.begin());
  start[0] = static_cast<hsize_t>(first);
  size[0] = static_cast<hsize_t>(count);
  Hdf5Handle memory(H5Screate_simple(shape_.rank(), size.data(), nullptr), H5Sclose);
  Hdf5Handle file(H5Dget_space(id_.get()), H5Sclose);
  if (H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr) < 0 ||
      H5Dread(id_.get(), memory_type(as), memory.get(), file.get(), H5P_DEFAULT, out) < 0)
    fail(count == 1 ? fmt::format("row '{}'", first)
                    : fmt::format("rows '{}' to '{}'", first, first + count - 1));
}

std::vector<ChunkLocation> Hdf5Dataset::chunk_index() const {
  Hdf5Lock lock;
  const int64_t rows = layout_.chunk[0], chunks = (shape_[0] + rows - 1) / rows;
  {
    Hdf5Handle file(H5Iget_file_id(id_.get()), H5Fclose);
    Hdf5Handle created(H5Fget_create_plist(file.get()), H5Pclose);
    hsize_t user_block = 0;
    H5Pget_userblock(created.get(), &user_block);
    if (user_block > 0) return {};
  }
  hsize_t written = 0;
  Hdf5Handle space(H5Dget_space(id_.get()), H5Sclose);
  if (H5Dget_num_chunks(id_.get(), space.get(), &written) < 0) fail("the chunk index");
  if (static_cast<int64_t>(written) != chunks) return {};
  std::vector<ChunkLocation> index(static_cast<size_t>(chunks));
  for (hsize_t i = 0; i < written; ++i) {
    std::array<hsize_t, Shape::kMaxRank> offset{};
    unsigned mask = 0;
    haddr_t address = 0;
    hsize_t bytes = 0;
    if (H5Dget_chunk_info(id_.get(), space.get(), i, offset.data(), &mask, &address, &bytes) < 0)
      fail("the chunk index");
    index[offset[0] / static_cast<hsize_t>(rows)] = {address, bytes, mask};
  }
  return index;
}

ChunkLocation Hdf5Dataset::read_chunk(int64_t row, std::vector<uint8_t>& out) const {
  Hdf5Lock lock;
  std::array<hsize_t, Shape::kMaxRank> offset{};
  offset[0] = static_cast<hsize_t>(row);
  hsize_t bytes = 0;
  uint32_t mask = 0;
  if (H5Dget_chunk_storage_size(id_.get(), offset.data(), &bytes) < 0) bytes = 0;  // 1.10: never written
  out.resize(bytes);
  if (bytes > 0 && H5Dread_chunk(id_.get(), H5P_DEFAULT, offset.data(), &mask, out.data()) < 0)
    fail(fmt::format("the chunk of row '{}'", row));
  return {0, bytes, mask};
}

Hdf5File::Hdf5File(const std::string& path) : path_(path) {
  const PosixFile file(path);
  const std::optional<uint64_t> end = stored_end_of_file(file);
  if (!end)
    throw UserError(fmt::format("file '{}' is not an HDF5 file", path),
                    fmt::format("its '{}' bytes hold no HDF5 signature", file.size()),
                    "name a file that datatool or h5py wrote");
  if (file.size() < *end)
    throw UserError(fmt::format("file '{}' is cut short", path),
                    fmt::format("it has '{}' bytes, its superblock says '{}'", file.size(), *end),
                    "copy or make the file again");
  bytes_ = file.size();
  Hdf5Lock lock;
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  id_ = Hdf5Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!id_)
    throw UserError(fmt::format("HDF5 file '{}' cannot be opened", path), "HDF5: " + hdf5_error(),
                    "the file is damaged: copy or make it again");
}

std::vector<std::string> Hdf5File::dataset_names() const {
  Hdf5Lock lock;
  std::vector<std::string> names;
  auto add = [](hid_t group, const char* name, const H5L_info_t*, void* out) -> herr_t {
    Hdf5Handle object(H5Oopen(group, name, H5P_DEFAULT), H5Oclose);
    if (object && H5Iget_type(object.get()) == H5I_DATASET)
      static_cast<std::vector<std::string>*>(out)->push_back(std::string("/") + name);
    return 0;
  };
  H5Literate(id_.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names);
  return names;
}

bool Hdf5File::has_dataset(const std::string& name) const {
  const std::vector<std::string> names = dataset_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

Hdf5Dataset Hdf5File::dataset(const std::string& name, int rank, size_t chunk_cache_bytes) const {
  Hdf5Lock lock;
  if (!has_dataset(name)) {
    const std::vector<std::string> names = dataset_names();
    throw UserError(fmt::format("file '{}' has no data set '{}'", path_, name),
                    names.empty() ? "its root group holds no data set"
                                  : fmt::format("it holds '{}'", fmt::join(names, "', '")),
                    "docs/data-format.md says what a data file holds");
  }
  Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  if (chunk_cache_bytes > 0)
    H5Pset_chunk_cache(access.get(), H5D_CHUNK_CACHE_NSLOTS_DEFAULT, chunk_cache_bytes,
                       H5D_CHUNK_CACHE_W0_DEFAULT);
  Hdf5Dataset set;
  set.path_ = path_;
  set.name_ = name;
  set.id_ = Hdf5Handle(H5Dopen2(id_.get(), name.c_str(), access.get()), H5Dclose);
  if (!set.id_) set.fail("the header");
  Hdf5Handle space(H5Dget_space(set.id_.get()), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> dims{};
  const int found = H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  if (found != rank)
    throw UserError(fmt::format("data set '{}' in file '{}' has '{}' dimensions", name, path_, found),
                    fmt::format("it must have '{}'", rank),
                    "docs/data-format.md says what a data file holds");
  std::vector<int64_t> sizes(dims.begin(), dims.begin() + rank);
  set.shape_ = Shape(std::span<const int64_t>(sizes));
  Hdf5Handle type(H5Dget_type(set.id_.get()), H5Tclose);
  set.type_ = describe(type.get());
  set.layout_ = describe_layout(set.id_.get());
  uint64_t bytes = set.type_.bytes;
  bool impossible = false;
  for (int64_t size : set.shape_)
    impossible |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  if (set.layout_.offset >= 0)
    impossible |= bytes > bytes_ - std::min(bytes_, static_cast<uint64_t>(set.layout_.offset));
  if (impossible)
    throw UserError(
        fmt::format("data set '{}' in file '{}' is damaged", name, path_),
        fmt::format("its shape '{}' is more than the file's '{}' bytes hold", set.shape_.text(), bytes_),
        "copy or make the file again");
  return set;
}

}  // namespace lockstep::data
