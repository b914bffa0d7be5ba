#include "data/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "data/hdf5_file.h"

namespace lockstep::data {
namespace {

std::vector<uint64_t> row_checksums(const Hdf5File& file, int64_t n) {
  if (!file.has_dataset("/checksums")) return {};
  const Hdf5Dataset set = file.dataset("/checksums", 1);
  if (set.shape()[0] != n || !set.type().is_integer() || set.type().bytes != 8)
    throw UserError(fmt::format("data set '/checksums' in file '{}' has shape '{}' and type '{}'",
                                file.path(), set.shape().text(), set.type().text()),
                    fmt::format("it must hold one 'u64' for each of '{}' rows", n), "make the file again");
  set.require_stored();
  std::vector<uint64_t> sums(static_cast<size_t>(n));
  set.read_rows(0, n, Dtype::u64, sums.data());
  return sums;
}

}  // namespace

std::vector<std::string> find_damage(const ClassificationSet& set, size_t limit, const OnProgress& progress) {
  std::vector<std::string> damage;
  auto report = [&](std::string line) {
    if (damage.size() < limit) damage.push_back(std::move(line));
  };
  const Hdf5File file(set.path());
  const int64_t n = set.num_samples();
  const std::vector<uint64_t> checksums = row_checksums(file, n);
  for (size_t c = 0; c < set.std().size(); ++c)
    if (const float mean = set.mean()[c], deviation = set.std()[c];
        !(deviation > 0) || !std::isfinite(deviation) || !std::isfinite(mean))
      report(fmt::format("channel '{}' has mean '{}' and std '{}': std must be more than 0, and both finite",
                         c, mean, deviation));

  Xxh3Stream content;
  std::vector<uint8_t> image(static_cast<size_t>(set.image().bytes()));
  bool all_read = true;
  for (int64_t row = 0; row < n; ++row) {
    try {
      set.read(static_cast<uint64_t>(row), image.data());
    } catch (const UserError& error) {
      report(error.headline() + ": " + error.why());
      all_read = false;
      const int64_t rows = std::max<int64_t>(set.chunk_rows(), 1);  // the rest of the chunk is lost with it
      const int64_t skipped = std::min((row / rows + 1) * rows, n) - row;
      row += skipped - 1;
      if (progress) progress(static_cast<uint64_t>(skipped));
      continue;
    }
    content.update(image.data(), image.size());
    if (!checksums.empty()) {
      const int32_t label = set.label(static_cast<uint64_t>(row));
      Xxh3Stream one;
      one.update(image.data(), image.size());
      one.update(&label, sizeof label);
      if (one.digest() != checksums[static_cast<size_t>(row)])
        report(fmt::format("row '{}' is damaged: its image and label hash to '{}', stored is '{}'", row,
                           hex64(one.digest()), hex64(checksums[static_cast<size_t>(row)])));
    }
    if (progress) progress(1);
  }
  content.update(set.labels().data(), set.labels().size_bytes());
  const auto stored = file.string("content_xxh3");
  if (stored && all_read && *stored != hex64(content.digest()))
    report(fmt::format("the content hashes to '{}', attribute 'content_xxh3' is '{}'",
                       hex64(content.digest()), *stored));
  return damage;
}

}  // namespace lockstep::data
