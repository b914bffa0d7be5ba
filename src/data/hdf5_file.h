// HDF5 files, read only: a thin layer over the serial C API that turns its failures into UserErrors which
// name the file, the data set and the row. Safe to use from many threads; the library itself works for one at
// a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "data/hdf5_handle.h"

namespace lockstep::data {

/// Element type as stored.
struct ElementType {
  enum class Kind { unsigned_integer, signed_integer, floating, other };
  Kind kind = Kind::other;
  size_t bytes = 0;
  bool big_endian = false;
  bool is_integer() const { return kind == Kind::unsigned_integer || kind == Kind::signed_integer; }
  std::string text() const;  ///< "u8", "big-endian i64", "f32", "neither integer nor float"
};

struct Filter {
  int id = 0;  ///< H5Z_FILTER_DEFLATE 1, SHUFFLE 2, FLETCHER32 3; others are registered with the HDF Group
  std::string name;
};

/// How a data set lies in its file.
struct StorageLayout {
  enum class Kind { contiguous, chunked, other };
  Kind kind = Kind::other;
  bool elsewhere = false;  ///< the bytes are in other files: external or virtual storage
  /// The file that an external link leads to: addresses are of that one. Empty: the file that was opened.
  std::string linked_file;
  int64_t offset =
      -1;       ///< contiguous: byte of element 0 in the file, -1 where there is none (external, unwritten)
  Shape chunk;  ///< chunked: shape of a chunk
  std::vector<Filter> filters;  ///< chunked: in the order in which they were applied on writing
};

/// Bytes of one chunk in the file.
struct ChunkLocation {
  uint64_t address = 0, bytes = 0;
  uint32_t skipped_filters = 0;  ///< bit i: filter i was not applied to this chunk
};

class Hdf5Dataset {
 public:
  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  const ElementType& type() const { return type_; }
  const StorageLayout& layout() const { return layout_; }

  /// Elements of rows [first, first + count) along dimension 0, converted to `as` (u8, i32, i64, f32 or f64).
  /// Throws UserError naming the row.
  void read_rows(int64_t first, int64_t count, Dtype as, void* out) const;

  /// Throws UserError where the bytes stored for it cannot hold all of its elements: to be called before
  /// memory for all of them is taken.
  void require_stored() const;

  /// Where each chunk lies, for data sets chunked along dimension 0 alone, by chunk number. Empty when some
  /// chunk was never written, or when the file has a user block: library versions disagree about whether
  /// addresses count it. Quadratic in the number of chunks with HDF5 1.10 (2 s for 16,000). Throws UserError.
  std::vector<ChunkLocation> chunk_index() const;

  /// The stored bytes of the chunk that starts at `row`, through the library; none where it was never
  /// written. Throws UserError.
  ChunkLocation read_chunk(int64_t row, std::vector<uint8_t>& out) const;

 private:
  friend class Hdf5File;
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void damaged(const std::string& why) const;
  /// `most` is how far each dimension may grow: what the library holds chunks to when it writes, and trusts
  /// when it reads.
  void require_possible(const std::vector<uint64_t>& most) const;
  uint64_t bytes() const;  ///< of all elements; UINT64_MAX where that is no sensible number
  std::string path_, name_;
  uint64_t file_bytes_ = 0;  ///< of the file that it is in
  Hdf5Handle id_;
  Shape shape_;
  ElementType type_;
  StorageLayout layout_;
};

class Hdf5File {
 public:
  /// Opens without file locks, which shared file systems often lack. Throws UserError that tells apart:
  /// missing, unreadable, not HDF5, cut short (stored end of file against size), damaged.
  explicit Hdf5File(const std::string& path);

  const std::string& path() const { return path_; }
  /// Data sets of the root group, by name: "/images".
  std::vector<std::string> dataset_names() const;
  bool has_dataset(const std::string& name) const;

  /// `chunk_cache_bytes` is what the library keeps of decoded chunks; 0 is its default (1 MiB). It holds only
  /// where the data set is not open already. Throws UserError: missing (lists what there is), wrong rank, a
  /// link that leads nowhere, or a shape or chunks that a file of this size cannot hold, so that no damaged
  /// size is ever allocated.
  Hdf5Dataset dataset(const std::string& name, int rank, size_t chunk_cache_bytes = 0) const;

  /// Root attributes; nullopt where there is none of that name or it is of another type.
  std::optional<std::vector<std::string>> strings(const std::string& attribute) const;
  std::optional<std::string> string(const std::string& attribute) const;
  std::optional<std::vector<double>> numbers(const std::string& attribute) const;
  /// All root attributes in the order of their names, their values as text.
  std::vector<std::pair<std::string, std::string>> attributes() const;

 private:
  std::string path_;
  uint64_t bytes_ = 0;
  Hdf5Handle id_;
};

}  // namespace lockstep::data
