// Labelled images in one HDF5 file (docs/data-format.md), written by datatool or by anyone else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/order.h"
#include "data/transforms.h"

namespace lockstep::data {

/// Told the number of rows done since the last call.
using OnProgress = std::function<void(uint64_t rows)>;

/// Data sets /images u8 [N, H, W, C] and /labels [N], any type that holds whole numbers. All labels are in
/// memory and known to be in range. Reading is const and safe from many threads.
class ClassificationSet {
 public:
  /// Throws UserError naming file, data set and row: see Hdf5File; wrong rank, type or count; no samples;
  /// images with channels first; a label that is no whole number or no class, or would make far more classes
  /// than there are samples; num_samples that is not their number; mean or std of the wrong length; another
  /// version of the format.
  explicit ClassificationSet(const std::string& path);
  ~ClassificationSet();
  ClassificationSet(ClassificationSet&&) noexcept;
  ClassificationSet& operator=(ClassificationSet&&) noexcept;

  const std::string& path() const;
  int64_t num_samples() const;
  const ImageShape& image() const;
  int64_t height() const { return image().height; }
  int64_t width() const { return image().width; }
  int64_t channels() const { return image().channels; }
  /// Length of the class_names attribute, else the largest label + 1.
  int64_t num_classes() const;
  const std::vector<std::string>& class_names() const;  ///< empty where the file has none
  const std::vector<float>& mean() const;  ///< [C], of pixels in [0, 1]; 0 where the file has none
  const std::vector<float>& std() const;   ///< [C], likewise; 1 where the file has none

  int32_t label(uint64_t row) const { return labels()[row]; }
  std::span<const int32_t> labels() const;  ///< [N]
  /// Copies image `row`, u8 [H, W, C], to `out`. Throws UserError naming the row or chunk that cannot be
  /// read.
  void read(uint64_t row, uint8_t* out) const;

  /// How images are read: "contiguous (pread)", "chunks of 80 rows, deflate + fletcher32 (decoded by our
  /// threads)", "through the HDF5 library: filter 'lzf'".
  const std::string& layout() const;
  /// Rows of a chunk that must be decoded as a whole, 0 where a row can be read alone; and how many such
  /// chunks are kept decoded together. They give Order its window.
  int64_t chunk_rows() const;
  int64_t window_chunks() const;

  /// Sixteen hex digits, xxh3 over all images, then all labels as little-endian i32, in stored order: the
  /// content_xxh3 attribute, else computed on the first call, which reads the whole file and tells
  /// `progress`.
  std::string content_hash(const OnProgress& progress = {}) const;
  /// Whether content_hash() has nothing to read.
  bool has_stored_hash() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The order that suits how the file is stored.
Order make_order(const ClassificationSet& set, int64_t global_batch, uint64_t seed, bool shuffle,
                 bool drop_last = false);

}  // namespace lockstep::data
