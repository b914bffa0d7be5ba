#include "data/idx.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "data/deflate.h"
#include "data/posix_file.h"

namespace lockstep::data {

std::vector<uint8_t> read_maybe_gzip(const std::string& path) {
  std::vector<uint8_t> stored = PosixFile(path).read_all();
  if (stored.size() < 2 || stored[0] != 0x1f || stored[1] != 0x8b) return stored;
  const Decompressor decompressor(libdeflate_alloc_decompressor());
  // The last four bytes give the size of the last member, modulo 2^32: a first guess, no more. Damaged ones
  // may say anything, so that a guess past what images deflate to is worked up to.
  uint64_t guess = 0;
  for (size_t i = 0; stored.size() >= 4 && i < 4; ++i)
    guess |= uint64_t{stored[stored.size() - 4 + i]} << (8 * i);
  constexpr uint64_t kUsualRatio = 16;
  const uint64_t most = stored.size() * kMaxDeflateRatio;
  std::vector<uint8_t> out(
      std::clamp<uint64_t>(guess, 64, std::max<uint64_t>(stored.size() * kUsualRatio, 64)));
  size_t used = 0, filled = 0;
  while (used < stored.size()) {
    size_t in = 0, got = 0;
    const libdeflate_result result =
        libdeflate_gzip_decompress_ex(decompressor.get(), stored.data() + used, stored.size() - used,
                                      out.data() + filled, out.size() - filled, &in, &got);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE && out.size() < most) {
      out.resize(std::min<uint64_t>(out.size() * 2, most));
      continue;
    }
    if (result != LIBDEFLATE_SUCCESS)
      throw UserError(fmt::format("gzip file '{}' is damaged or cut short", path),
                      fmt::format("its stream breaks after '{}' decoded bytes", filled),
                      "download or copy it again");
    used += in;
    filled += got;
  }
  out.resize(filled);
  return out;
}

IdxFile read_idx(const std::string& path) {
  IdxFile file{.path = path, .bytes = read_maybe_gzip(path)};
  const std::vector<uint8_t>& b = file.bytes;
  if (b.size() < 4 || b[0] != 0 || b[1] != 0 || b[3] == 0 || b[3] > 8) {
    std::string start;
    for (size_t i = 0; i < std::min<size_t>(b.size(), 4); ++i)
      start += fmt::format("{}{:02x}", i ? " " : "", b[i]);
    throw UserError(
        fmt::format("file '{}' is not an IDX file", path),
        fmt::format("it starts with '{}', an IDX file with '00 00 08' and the number of dimensions", start),
        "name a file such as 'train-images-idx3-ubyte.gz'");
  }
  if (b[2] != 0x08)
    throw UserError(fmt::format("IDX file '{}' has elements of type '0x{:02x}'", path, b[2]),
                    "only unsigned bytes, '0x08', are images or labels here",
                    "convert the file to unsigned bytes");
  const size_t dimensions = b[3], header = 4 + 4 * dimensions;
  uint64_t expected = 1;
  bool overflow = b.size() < header;
  for (size_t d = 0; d < dimensions && !overflow; ++d) {
    const uint8_t* p = &b[4 + 4 * d];
    const uint64_t size = (uint64_t{p[0]} << 24) | (uint64_t{p[1]} << 16) | (uint64_t{p[2]} << 8) | p[3];
    file.sizes.push_back(static_cast<int64_t>(size));
    overflow = __builtin_mul_overflow(expected, size, &expected);
  }
  if (overflow || b.size() - header != expected)
    throw UserError(fmt::format("IDX file '{}' is cut short or damaged", path),
                    overflow ? fmt::format("its '{}' bytes do not hold its header", b.size())
                             : fmt::format("its header says '{}' bytes of elements, it has '{}'", expected,
                                           b.size() - header),
                    "download or copy it again");
  return file;
}

IdxPair read_idx_pair(const std::string& images, const std::string& labels) {
  IdxPair pair{.images = read_idx(images), .labels = read_idx(labels)};
  const std::vector<int64_t>& s = pair.images.sizes;
  auto wrong_rank = [](const IdxFile& file, const char* wanted, const char* hint) {
    throw UserError(fmt::format("IDX file '{}' has '{}' dimensions", file.path, file.sizes.size()),
                    fmt::format("{} dimensions are needed", wanted), hint);
  };
  if (s.size() != 3 && s.size() != 4)
    wrong_rank(pair.images, "'3' (samples, height, width) or '4' (and channels)",
               "are --images and --labels exchanged?");
  if (pair.labels.sizes.size() != 1)
    wrong_rank(pair.labels, "'1' (samples)", "are --images and --labels exchanged?");
  if (s[0] != pair.labels.sizes[0])
    throw UserError(fmt::format("'{}' images and '{}' labels do not match", s[0], pair.labels.sizes[0]),
                    fmt::format("files '{}' and '{}'", images, labels), "name two files of the same split");
  pair.num_samples = s[0];
  pair.image = {s[1], s[2], s.size() == 4 ? s[3] : 1};
  if (pair.num_samples == 0 || pair.image.bytes() == 0)
    throw UserError(fmt::format("IDX file '{}' holds no samples", images), "its sizes multiply to '0'",
                    "name a file with samples");
  return pair;
}

}  // namespace lockstep::data
