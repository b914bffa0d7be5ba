// Samples of a data set stored in whole-sample chunks, read past the HDF5 library: the chunk's bytes by
// pread, checked and inflated by the calling thread. Why: the library decodes one chunk at a time, whatever
// the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5_file.h"
#include "data/posix_file.h"

namespace lockstep::data {

/// HDF5's Fletcher32 of `bytes` (H5_checksum_fletcher32: big-endian 16-bit words).
uint32_t fletcher32(std::span<const uint8_t> bytes);

/// Why chunks of `dataset` (u8) cannot be decoded here, or "" when they can: chunks hold whole samples, and
/// the filters are among deflate, Fletcher32 and shuffle (which does nothing to elements of one byte).
std::string chunk_obstacle(const Hdf5Dataset& dataset);

/// read() may be called from many threads; one decodes a chunk while the others go on or wait for that chunk.
class ChunkReader {
 public:
  /// Beyond this number the library's own lookup is used, a chunk at a time: listing all addresses is
  /// quadratic in HDF5 1.10.
  static constexpr int64_t kMaxIndexed = 8192;

  /// `dataset` must outlive the reader and pass chunk_obstacle(). Keeps `cached_chunks` decoded chunks.
  ChunkReader(const std::string& path, const Hdf5Dataset& dataset, size_t cached_chunks);
  ~ChunkReader();

  /// Copies sample `row` to `out`. Throws UserError naming file, chunk and rows when a checksum or stream is
  /// wrong.
  void read(uint64_t row, uint8_t* out);
  bool indexed() const { return !index_.empty(); }

 private:
  struct Slot;
  Slot& slot_of(uint64_t chunk);
  void decode(uint64_t chunk, Slot& slot);
  [[noreturn]] void damaged(uint64_t chunk, const std::string& why) const;

  const Hdf5Dataset& dataset_;
  PosixFile file_;
  std::vector<ChunkLocation> index_;
  uint64_t chunk_rows_, sample_bytes_;
  std::mutex mutex_;  // over which slot holds which chunk; a slot's own mutex is over its bytes
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> holder_;  // by chunk: the slot that holds it, or null
  uint64_t clock_ = 0;
};

}  // namespace lockstep::data
