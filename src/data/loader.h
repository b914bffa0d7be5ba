// Micro-batches for one device, decoded and augmented ahead of the step by a few threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/classification_set.h"
#include "data/order.h"
#include "data/transforms.h"
#include "nn/batch.h"

namespace lockstep::data {

struct LoaderOptions {
  int64_t micro_batch = 1;      ///< m: samples of a shard
  int64_t shards_per_step = 1;  ///< S: shards of a global batch; the order's global_batch is S * m
  int64_t first_shard = 0;      ///< this device's first shard of each global batch
  int64_t num_shards = 1;       ///< A: how many this device takes
  int threads = 1;              ///< workers; 0 decodes inside next()
  int prefetch = 4;             ///< micro-batches decoded ahead of the one in use
  bool train = true;            ///< augment, and go on with the next epoch; false: one pass over the data
};

/// For each global batch b in turn: shard s of this device covers positions [b*G + s*m, b*G + (s+1)*m) of the
/// order, cut at the batch's real end, so that it is full, partial or empty (count 0); every device takes the
/// same number of shards. What a batch holds depends on neither threads nor prefetch nor timing.
class Loader {
 public:
  /// `set` must outlive the loader. The order's seed also keys augmentation. Throws UserError where
  /// transforms or drop_last leave nothing to give.
  Loader(const ClassificationSet& set, const Order& order, const TransformOptions& transforms,
         const LoaderOptions& options);
  ~Loader();  ///< joins the workers
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next micro-batch, valid until the following next() or seek(); nullptr after the single pass of an
  /// evaluation. Rethrows what a worker threw on it (UserError for damaged data).
  const nn::Batch* next();

  /// The next micro-batch becomes the device's first shard of that global batch. Reads nothing of what lies
  /// between. An evaluation still ends with epoch 0; seek({}) starts it anew.
  void seek(Cursor cursor);

  const Order& order() const;
  /// All buffers that batches point into, for pinning.
  std::span<std::byte> memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
