// Writing checkpoints: one directory each, committed by a rename, in the background.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/directory.h"
#include "checkpoint/retention.h"
#include "checkpoint/state.h"
#include "checkpoint/tensors.h"
#include "core/error.h"

namespace lockstep::checkpoint {

/// All that a checkpoint holds, on the host, owned.
struct Snapshot {
  State state;
  TensorStorage model;      ///< parameters and buffers: PyTorch's names and logical layouts
  TensorStorage optimizer;  ///< moments, averages
};

/// Writes `directory`/step-N and waits until it is on the disk. Order: .partial, model, optimizer, state.json
/// (each fsynced), the directory, the rename, the parent. An existing whole one of equal bytes is kept; any
/// other is replaced without a moment in which neither exists. On failure removes the .partial and throws
/// UserError. Returns the checkpoint's path.
std::filesystem::path write_checkpoint(const std::filesystem::path& directory, const Snapshot& snapshot,
                                       const FaultPoint& fault_point = {});

struct SaverOptions {
  std::filesystem::path directory;  ///< run.dir/checkpoints; made by the first save
  Retention retention;
  FaultPoint fault_point;  ///< for tests; called by the writing thread
};

/// Saves in a thread of its own, one write at a time, so that training goes on meanwhile. A failed write
/// loses that checkpoint only: take_failure() tells. Used by one thread.
class Saver {
 public:
  /// Cleans what a killed run left in the directory. Throws UserError.
  explicit Saver(SaverOptions options);
  /// Waits for the write in flight.
  ~Saver();

  /// A snapshot to fill: the storage of the last save, so that only the first one allocates. Waits for the
  /// write in flight.
  Snapshot take_storage();
  /// Starts writing; waits for the write in flight first.
  void save(Snapshot&& snapshot);
  /// Whether a write is in flight: whether the calls that wait would.
  bool busy() const { return busy_; }
  /// Waits for the write in flight.
  void finish();

  /// The last failure not yet taken: what was lost, why, what to do.
  std::optional<UserError> take_failure();
  /// best_metric() of the directory, by the metric of the retention; the write in flight is not in it.
  std::optional<Metric> best() const { return best_metric(options_.directory, options_.retention.best); }
  /// The last checkpoint committed; empty when none was.
  std::filesystem::path last_committed() const;

 private:
  void write();
  SaverOptions options_;
  Snapshot snapshot_;
  std::thread writer_;
  std::atomic<bool> busy_ = false;
  mutable std::mutex mutex_;  // of the two below
  std::optional<UserError> failure_;
  std::filesystem::path committed_;
};

}  // namespace lockstep::checkpoint
