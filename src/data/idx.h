// IDX files (the format of MNIST and its successors), plain or gzipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/transforms.h"

namespace lockstep::data {

/// The file's bytes, inflated where they are gzip (all members). Throws UserError: unreadable, damaged, cut
/// short.
std::vector<uint8_t> read_maybe_gzip(const std::string& path);

/// u8 elements with their sizes: IDX magic 00 00 08 D, then D big-endian 32-bit sizes, then the elements.
struct IdxFile {
  std::string path;
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;  ///< the whole file
  const uint8_t* elements() const { return bytes.data() + 4 + 4 * sizes.size(); }
};

/// Throws UserError naming the file: not IDX, elements that are not u8, sizes that do not match the file's.
IdxFile read_idx(const std::string& path);

/// Images and labels that belong together.
struct IdxPair {
  IdxFile images, labels;
  ImageShape image;  ///< [N, H, W] gives one channel; [N, H, W, C] is taken as it is
  int64_t num_samples = 0;
};

/// Throws UserError: see read_idx; wrong number of dimensions, no samples, unequal counts.
IdxPair read_idx_pair(const std::string& images, const std::string& labels);

}  // namespace lockstep::data
