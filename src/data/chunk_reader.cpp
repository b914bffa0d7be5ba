#include "data/chunk_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "data/deflate.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kNone = UINT64_MAX;
enum FilterId { kDeflate = 1, kShuffle = 2, kFletcher32 = 3 };

/// What HDF5 before 1.6.3 stored on little-endian machines; the library still accepts it.
uint32_t swapped_halves(uint32_t sum) { return ((sum & 0x00FF00FFu) << 8) | ((sum >> 8) & 0x00FF00FFu); }

}  // namespace

uint32_t fletcher32(std::span<const uint8_t> bytes) {
  uint32_t sum1 = 0, sum2 = 0;
  size_t words = bytes.size() / 2, at = 0;
  while (words > 0) {
    const size_t block = std::min<size_t>(words, 360);  // the most that cannot overflow
    words -= block;
    for (size_t i = 0; i < block; ++i, at += 2) {
      sum1 += (uint32_t{bytes[at]} << 8) | bytes[at + 1];
      sum2 += sum1;
    }
    sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
    sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
  }
  if (bytes.size() % 2) {
    sum1 += uint32_t{bytes[at]} << 8;
    sum2 += sum1;
    sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
    sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
  }
  sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
  sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
  return (sum2 << 16) | sum1;
}

std::string chunk_obstacle(const Hdf5Dataset& dataset) {
  const StorageLayout& layout = dataset.layout();
  if (!layout.linked_file.empty()) return fmt::format("linked from file '{}'", layout.linked_file);
  for (int d = 1; d < dataset.shape().rank(); ++d)
    if (layout.chunk[d] != dataset.shape()[d])
      return fmt::format("chunks of {} split samples", layout.chunk.text());
  for (const Filter& filter : layout.filters)
    if (filter.id != kDeflate && filter.id != kShuffle && filter.id != kFletcher32)
      return fmt::format("filter '{}'", filter.name.empty() ? std::to_string(filter.id) : filter.name);
  return "";
}

struct ChunkReader::Slot {
  uint64_t chunk = kNone, last_used = 0;  // guarded by ChunkReader::mutex_
  int users = 0;                          // likewise
  std::mutex mutex;                       // over what follows
  bool decoded = false;
  std::vector<uint8_t> samples, stored, scratch;
  Decompressor decompressor;
};

ChunkReader::ChunkReader(const std::string& path, const Hdf5Dataset& dataset, size_t cached_chunks)
    : dataset_(dataset), file_(path), chunk_rows_(static_cast<uint64_t>(dataset.layout().chunk[0])) {
  sample_bytes_ = 1;
  for (int d = 1; d < dataset.shape().rank(); ++d) sample_bytes_ *= static_cast<uint64_t>(dataset.shape()[d]);
  const uint64_t chunks = (static_cast<uint64_t>(dataset.shape()[0]) + chunk_rows_ - 1) / chunk_rows_;
  if (chunks <= static_cast<uint64_t>(kMaxIndexed)) index_ = dataset.chunk_index();
  holder_.resize(chunks);
  for (size_t i = 0; i < std::clamp<size_t>(cached_chunks, 1, chunks); ++i)
    slots_.push_back(std::make_unique<Slot>());
}

ChunkReader::~ChunkReader() = default;

/// The slot that holds `chunk`, or the least recently used one made over to it; one more user of it either
/// way.
ChunkReader::Slot& ChunkReader::slot_of(uint64_t chunk) {
  std::lock_guard lock(mutex_);
  Slot* found = holder_[chunk];
  if (!found) {
    for (const auto& slot : slots_)
      if (slot->users == 0 && (!found || slot->last_used < found->last_used)) found = slot.get();
    if (!found) found = slots_.emplace_back(std::make_unique<Slot>()).get();  // more threads than slots
    if (found->chunk != kNone) holder_[found->chunk] = nullptr;
    holder_[chunk] = found;
    found->chunk = chunk;
    found->decoded = false;  // no user: nobody holds its mutex
  }
  found->last_used = ++clock_;
  ++found->users;
  return *found;
}

void ChunkReader::read(uint64_t row, uint8_t* out) {
  const uint64_t chunk = row / chunk_rows_;
  Slot& slot = slot_of(chunk);
  struct Release {
    ChunkReader& reader;
    Slot& slot;
    ~Release() {
      std::lock_guard lock(reader.mutex_);
      --slot.users;
    }
  } release{*this, slot};
  std::lock_guard lock(slot.mutex);
  if (!slot.decoded) {
    decode(chunk, slot);
    slot.decoded = true;
  }
  std::memcpy(out, slot.samples.data() + (row - chunk * chunk_rows_) * sample_bytes_, sample_bytes_);
}

void ChunkReader::decode(uint64_t chunk, Slot& slot) {
  ChunkLocation location;
  if (index_.empty()) {
    location = dataset_.read_chunk(static_cast<int64_t>(chunk * chunk_rows_), slot.stored);
    if (location.bytes == 0) {  // never written: the library knows the fill value
      const uint64_t first = chunk * chunk_rows_, rows = static_cast<uint64_t>(dataset_.shape()[0]);
      slot.samples.resize(chunk_rows_ * sample_bytes_);
      dataset_.read_rows(static_cast<int64_t>(first),
                         static_cast<int64_t>(std::min(chunk_rows_, rows - first)), Dtype::u8,
                         slot.samples.data());
      return;
    }
  } else {
    location = index_[chunk];
    slot.stored.resize(location.bytes);
    file_.read(location.address, slot.stored);
  }
  const uint64_t decoded_bytes = chunk_rows_ * sample_bytes_;
  std::vector<uint8_t>*bytes = &slot.stored, *spare = &slot.scratch;
  const std::vector<Filter>& filters = dataset_.layout().filters;
  for (size_t i = filters.size(); i-- > 0;) {
    if (location.skipped_filters & (1u << i)) continue;
    if (filters[i].id == kFletcher32) {
      if (bytes->size() < 4) damaged(chunk, "it is too short for its checksum");
      const uint8_t* tail = bytes->data() + bytes->size() - 4;
      const uint32_t stored = tail[0] | (tail[1] << 8) | (tail[2] << 16) | (uint32_t{tail[3]} << 24);
      bytes->resize(bytes->size() - 4);
      const uint32_t sum = fletcher32(*bytes);
      if (sum != stored && swapped_halves(sum) != stored)
        damaged(chunk, fmt::format("its Fletcher32 checksum is '{:08x}', stored is '{:08x}'", sum, stored));
    } else if (filters[i].id == kDeflate) {
      if (!slot.decompressor) slot.decompressor.reset(libdeflate_alloc_decompressor());
      // A checksum or a deflate stream may lie inside.
      spare->resize(
          std::min(decoded_bytes + decoded_bytes / 256 + 64, bytes->size() * kMaxDeflateRatio + 64));
      size_t got = 0;
      if (libdeflate_zlib_decompress(slot.decompressor.get(), bytes->data(), bytes->size(), spare->data(),
                                     spare->size(), &got) != LIBDEFLATE_SUCCESS)
        damaged(chunk, "its deflate stream is broken");
      spare->resize(got);
      std::swap(bytes, spare);
    }
  }
  if (bytes->size() != decoded_bytes)
    damaged(chunk, fmt::format("it decodes to '{}' bytes, not '{}'", bytes->size(), decoded_bytes));
  std::swap(slot.samples, *bytes);
}

void ChunkReader::damaged(uint64_t chunk, const std::string& why) const {
  const uint64_t first = chunk * chunk_rows_;
  const uint64_t last =
      std::min<uint64_t>(first + chunk_rows_, static_cast<uint64_t>(dataset_.shape()[0])) - 1;
  throw UserError(fmt::format("chunk '{}' (rows '{}' to '{}') of data set '{}' in file '{}' is damaged",
                              chunk, first, last, dataset_.name(), file_.path()),
                  why, "run 'datatool verify' to find all damage, then copy or make the file again");
}

}  // namespace lockstep::data
