// The binary version of CIFAR-10 and CIFAR-100: records of labels and 3 x 32 x 32 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

enum class CifarKind { cifar10, cifar100_fine, cifar100_coarse };

constexpr int64_t kCifarImageBytes = 32 * 32 * 3;

/// Bytes of a record: one label (CIFAR-10), or a coarse and a fine one, then the planes red, green, blue.
constexpr int64_t cifar_record_bytes(CifarKind kind) {
  return kCifarImageBytes + (kind == CifarKind::cifar10 ? 1 : 2);
}
constexpr int64_t cifar_classes(CifarKind kind) {
  return kind == CifarKind::cifar10 ? 10 : kind == CifarKind::cifar100_fine ? 100 : 20;
}

/// All records of the files, one after another.
struct CifarFiles {
  CifarKind kind;
  std::vector<std::vector<uint8_t>> files;
  std::vector<int64_t> first_sample;  ///< of each file, and the total at the end
  int64_t num_samples() const { return first_sample.back(); }
  int64_t label(uint64_t sample) const;
  void image(uint64_t sample, uint8_t* out) const;  ///< u8 [32, 32, 3]

 private:
  const uint8_t* record(uint64_t sample) const;
};

/// Throws UserError naming the file (and record): a size that is no number of records, a label out of range.
CifarFiles read_cifar(const std::vector<std::string>& paths, CifarKind kind);

}  // namespace lockstep::data
