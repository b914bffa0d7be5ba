// libdeflate's decompressor as a value, and what a deflate stream can hold at most.
#pragma once

#include <libdeflate.h>

#include <cstdint>
#include <memory>

namespace lockstep::data {

/// Decoded bytes for each stored one (zlib's technical notes). What claims more is damaged.
constexpr uint64_t kMaxDeflateRatio = 1032;

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
};
using Decompressor = std::unique_ptr<libdeflate_decompressor, FreeDecompressor>;

}  // namespace lockstep::data
