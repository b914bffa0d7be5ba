// Writes classification files (docs/data-format.md): shuffled once on the way in, committed by a rename.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/order.h"
#include "data/transforms.h"

namespace lockstep::data {

/// What becomes of a file that exists already, at the start or when the new one is complete.
enum class IfExists {
  refuse,   ///< UserError
  replace,  ///< it is replaced
  keep,     ///< it stays, and what was written is dropped
};

struct WriterOptions {
  int64_t num_samples = 0;
  ImageShape image;
  std::vector<std::string> class_names;  ///< one a class; labels are their numbers
  bool compress = false;                 ///< deflate in whole-sample chunks, instead of contiguous
  uint64_t shuffle_seed = 0;
  std::string made_by;  ///< how the file came to be: the command line
  IfExists if_exists = IfExists::refuse;
};

/// Rows of a chunk for images of that size: 256 KiB worth, at least one, more where there would be 8,000
/// chunks.
int64_t rows_per_chunk(int64_t num_samples, const ImageShape& image);

/// Writes a PartialFile; commit() makes it durable and renames it to FILE. Without commit() it is removed.
/// The bytes are a function of the options and the samples.
///
///     for (int64_t i = 0; i < n; ++i) writer.append(image(writer.source_row(i)),
///     label(writer.source_row(i))); writer.commit();
class ClassificationWriter {
 public:
  /// Throws UserError: FILE exists, its folder does not or cannot be written, no samples, no space.
  ClassificationWriter(const std::string& path, const WriterOptions& options);
  ~ClassificationWriter();
  ClassificationWriter(const ClassificationWriter&) = delete;
  ClassificationWriter& operator=(const ClassificationWriter&) = delete;

  /// Which sample of the input is stored as row `stored`.
  uint64_t source_row(uint64_t stored) const;
  /// The next stored row: `image` is u8 [H, W, C]. Throws UserError: the label is no class (the input row is
  /// named), the disk is full.
  void append(const uint8_t* image, int64_t label);
  /// After num_samples rows. Throws UserError: the disk is full, FILE has come to exist meanwhile.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
