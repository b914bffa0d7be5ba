#include "data/cifar.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "data/idx.h"

namespace lockstep::data {

const uint8_t* CifarFiles::record(uint64_t sample) const {
  const int64_t s = static_cast<int64_t>(sample);
  const size_t file = static_cast<size_t>(std::upper_bound(first_sample.begin(), first_sample.end(), s) - 1 -
                                          first_sample.begin());
  return files[file].data() + (s - first_sample[file]) * cifar_record_bytes(kind);
}

int64_t CifarFiles::label(uint64_t sample) const {
  return record(sample)[kind == CifarKind::cifar100_fine ? 1 : 0];
}

void CifarFiles::image(uint64_t sample, uint8_t* out) const {
  constexpr int64_t kPlane = 32 * 32;
  const uint8_t* planes = record(sample) + cifar_record_bytes(kind) - kCifarImageBytes;
  for (int64_t i = 0; i < kPlane; ++i)
    for (int64_t c = 0; c < 3; ++c) out[3 * i + c] = planes[c * kPlane + i];
}

CifarFiles read_cifar(const std::vector<std::string>& paths, CifarKind kind) {
  CifarFiles all{.kind = kind, .files = {}, .first_sample = {0}};
  const int64_t record = cifar_record_bytes(kind);
  for (const std::string& path : paths) {
    std::vector<uint8_t> bytes = read_maybe_gzip(path);
    const int64_t size = static_cast<int64_t>(bytes.size());
    if (size == 0 || size % record != 0) {
      const bool other = size > 0 && size % (record == 3073 ? 3074 : 3073) == 0;
      throw UserError(fmt::format("file '{}' is no {} file in the binary version", path,
                                  kind == CifarKind::cifar10 ? "CIFAR-10" : "CIFAR-100"),
                      fmt::format("its '{}' bytes are not a whole number of records of '{}'", size, record),
                      other ? fmt::format("it fits --kind '{}'", record == 3073 ? "cifar100" : "cifar10")
                            : "download it again");
    }
    all.files.push_back(std::move(bytes));
    const int64_t first = all.first_sample.back();
    all.first_sample.push_back(first + size / record);
    for (int64_t i = first; i < all.first_sample.back(); ++i)
      if (const int64_t label = all.label(static_cast<uint64_t>(i)); label >= cifar_classes(kind))
        throw UserError(
            fmt::format("label '{}' of record '{}' in file '{}' is out of range", label, i - first, path),
            fmt::format("labels are '0' to '{}'", cifar_classes(kind) - 1),
            "check --kind, or download the file again");
  }
  if (all.num_samples() == 0) throw UserError("no CIFAR file was named", "", "give --input FILE...");
  return all;
}

}  // namespace lockstep::data
