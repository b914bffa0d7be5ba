#include "data/hdf5_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "data/deflate.h"
#include "data/posix_file.h"

namespace lockstep::data {
namespace {

/// A chunk or a row of more bytes than that is taken for damage: it is HDF5's own limit for a chunk up
/// to 1.14.
constexpr uint64_t kMaxPiece = UINT32_MAX;

/// What a file of so many bytes can hold decoded. Any filter is granted what deflate can do at most.
uint64_t decoded_limit(uint64_t stored) {
  return stored > UINT64_MAX / kMaxDeflateRatio ? UINT64_MAX : stored * kMaxDeflateRatio;
}

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

StorageLayout describe_layout(hid_t dataset, int rank) {
  StorageLayout layout;
  Hdf5Handle list(H5Dget_create_plist(dataset), H5Pclose);
  layout.elsewhere = H5Pget_layout(list.get()) == H5D_VIRTUAL || H5Pget_external_count(list.get()) > 0;
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
      if (H5Pget_chunk(list.get(), static_cast<int>(dims.size()), dims.data()) == rank) {
        const std::vector<int64_t> sizes(dims.begin(), dims.begin() + rank);
        layout.chunk = Shape(std::span<const int64_t>(sizes));
      }
      for (int i = 0; i < H5Pget_nfilters(list.get()); ++i) {
        std::array<char, 64> name{};
        unsigned flags = 0;
        size_t values = 0;
        const H5Z_filter_t id = H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags, &values, nullptr,
                                               name.size() - 1, name.data(), nullptr);
        layout.filters.push_back({id, name.data()});
      }
      break;
    }
    default:
      break;
  }
  return layout;
}

/// The path by which the library opened the file that `object` is in.
std::string file_of(hid_t object) {
  const ssize_t length = H5Fget_name(object, nullptr, 0);
  std::string name(static_cast<size_t>(std::max<ssize_t>(length, 0)), '\0');
  if (length > 0) H5Fget_name(object, name.data(), name.size() + 1);
  return name;
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

void Hdf5Dataset::damaged(const std::string& why) const {
  throw UserError(fmt::format("data set '{}' in file '{}' is damaged", name_, path_), why,
                  "copy or make the file again");
}

/// Bytes of that many elements of each dimension, UINT64_MAX where a size is negative or they overflow.
static uint64_t bytes_of(const Shape& shape, uint64_t element) {
  uint64_t bytes = element;
  bool impossible = false;
  for (int64_t size : shape)
    impossible |= size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  return impossible || bytes > INT64_MAX ? UINT64_MAX : bytes;
}

uint64_t Hdf5Dataset::bytes() const { return bytes_of(shape_, type_.bytes); }

void Hdf5Dataset::require_possible(const std::vector<uint64_t>& most) const {
  const uint64_t claimed = bytes(), rows = static_cast<uint64_t>(std::max<int64_t>(shape_[0], 1));
  uint64_t possible = decoded_limit(file_bytes_);
  if (layout_.elsewhere)
    possible = INT64_MAX;
  else if (layout_.offset >= 0)
    possible = std::min<uint64_t>(H5Dget_storage_size(id_.get()),
                                  file_bytes_ - std::min(file_bytes_, static_cast<uint64_t>(layout_.offset)));
  else if (layout_.kind == StorageLayout::Kind::other)  // compact
    possible = H5Dget_storage_size(id_.get());
  if (claimed > possible || claimed / rows > kMaxPiece)
    damaged(fmt::format("its shape '{}' is more than the file, of '{}' bytes, holds of it", shape_.text(),
                        file_bytes_));
  if (layout_.kind != StorageLayout::Kind::chunked) return;
  const uint64_t chunk = bytes_of(layout_.chunk, type_.bytes);
  bool fits = layout_.chunk.rank() == shape_.rank() && chunk > 0 &&
              chunk <= std::min(kMaxPiece, decoded_limit(file_bytes_));
  for (int d = 0; fits && d < shape_.rank(); ++d)
    fits = static_cast<uint64_t>(layout_.chunk[d]) <= most[static_cast<size_t>(d)];
  if (!fits)
    damaged(fmt::format("chunks of '{}' are impossible for its shape '{}' in a file of '{}' bytes",
                        layout_.chunk.text(), shape_.text(), file_bytes_));
}

void Hdf5Dataset::require_stored() const {
  if (layout_.elsewhere) return;
  Hdf5Lock lock;
  const uint64_t stored = H5Dget_storage_size(id_.get());
  if (bytes() > decoded_limit(std::min(stored, file_bytes_)))
    damaged(fmt::format("its shape '{}' is more than the '{}' bytes that are stored for it can hold",
                        shape_.text(), stored));
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
    const hsize_t chunk = offset[0] / static_cast<hsize_t>(rows);
    if (chunk >= written || bytes > file_bytes_ || address > file_bytes_ - bytes)
      damaged(fmt::format("its chunk of '{}' bytes at byte '{}' for row '{}' is not in the file's '{}' bytes",
                          bytes, address, offset[0], file_bytes_));
    index[chunk] = {address, bytes, mask};
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
  if (bytes > file_bytes_)
    damaged(
        fmt::format("its chunk of row '{}' claims '{}' of the file's '{}' bytes", row, bytes, file_bytes_));
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
    if (H5Lexists(id_.get(), name.c_str(), H5P_DEFAULT) > 0 &&
        !Hdf5Handle(H5Oopen(id_.get(), name.c_str(), H5P_DEFAULT), H5Oclose))
      throw UserError(fmt::format("data set '{}' in file '{}' cannot be opened", name, path_),
                      "HDF5: " + hdf5_error(),
                      "where it is a link, check what it leads to; else copy or make the file again");
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
  std::array<hsize_t, H5S_MAX_RANK> dims{}, most{};
  const int found = H5Sget_simple_extent_dims(space.get(), dims.data(), most.data());
  if (found != rank)
    throw UserError(fmt::format("data set '{}' in file '{}' has '{}' dimensions", name, path_, found),
                    fmt::format("it must have '{}'", rank),
                    "docs/data-format.md says what a data file holds");
  std::vector<int64_t> sizes(dims.begin(), dims.begin() + rank);
  set.shape_ = Shape(std::span<const int64_t>(sizes));
  Hdf5Handle type(H5Dget_type(set.id_.get()), H5Tclose);
  set.type_ = describe(type.get());
  set.layout_ = describe_layout(set.id_.get(), rank);
  set.file_bytes_ = bytes_;
  if (const std::string file = file_of(set.id_.get()); file != file_of(id_.get())) {
    set.layout_.linked_file = file;
    Hdf5Handle linked(H5Iget_file_id(set.id_.get()), H5Fclose);
    hsize_t size = 0;
    if (H5Fget_filesize(linked.get(), &size) < 0) set.fail("the size of the linked file");
    set.file_bytes_ = size;
  }
  set.require_possible({most.begin(), most.begin() + rank});
  return set;
}

}  // namespace lockstep::data
