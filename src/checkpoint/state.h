// state.json: what a checkpoint knows besides tensors, and how it proves itself whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"

namespace lockstep::checkpoint {

/// An evaluation's result at this step, for best-by-metric retention.
struct Metric {
  std::string name;  ///< such as "top1"
  double value = 0;
  bool higher_is_better = true;
  bool operator==(const Metric&) const = default;
};

struct State {
  int64_t step = 0;  ///< steps done, taken and skipped
  int64_t skipped_steps =
      0;              ///< of these, steps whose gradients were not finite; the schedule stands at the rest
  int64_t epoch = 0;  ///< cursor: the next batch is `batch` of `epoch`
  int64_t batch = 0;
  uint64_t seed = 0;
  int64_t shards = 1;                           ///< S, micro-batches in a global batch
  int64_t micro_batch = 0;                      ///< samples in a shard
  std::string job;                              ///< the resolved job, as a job file
  std::map<std::string, std::string> data;      ///< content hash by data set
  std::map<std::string, std::string> versions;  ///< of the trainer and its libraries
  /// Whatever else training keeps, bit-exact: "scaler.scale", "scaler.growth_tracker", ...
  std::map<std::string, double> values;
  std::optional<Metric> metric;
  int ranks = 1, replicas = 1;  ///< of the world that wrote it; information, nothing depends on it
  bool operator==(const State&) const = default;
};

/// The text of state.json. `files` are the other files; the record of state.json itself comes last in the
/// text: its size, and the XXH3 of the text with the sixteen digits of that very hash as '0'.
std::string state_text(const State& state, std::span<const FileRecord> files);

struct ParsedState {
  State state;
  std::vector<FileRecord> files;  ///< without state.json
};
/// Checks size and hash of the text and reads it. Throws std::runtime_error with what is wrong, one line.
ParsedState parse_state(const std::string& text);

}  // namespace lockstep::checkpoint
