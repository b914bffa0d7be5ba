// Which checkpoints stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/state.h"

namespace lockstep::checkpoint {

struct Retention {
  int64_t keep = 3;  ///< newest ones kept; 0 keeps all
  std::string best;  ///< besides, the best by the metric of this name, earliest among equals; empty: none
};

/// The best value of a metric among the whole checkpoints of a directory, as far as can be seen without
/// reading tensors; nothing where none carries it.
std::optional<Metric> best_metric(const std::filesystem::path& directory, const std::string& name);

/// Deletes what `retention` does not keep; call it only after a commit. `committed` is the checkpoint just
/// written: it is known to be whole and is never deleted, also when its step is not the newest. Ones that
/// state.json or a file's size show to be damaged take no whole one's place: they are deleted once older than
/// all that are kept. Each is renamed to .trash first. Returns the names deleted. Throws UserError.
std::vector<std::string> prune(const std::filesystem::path& directory, const Retention& retention,
                               const std::filesystem::path& committed, const FaultPoint& fault_point = {});

}  // namespace lockstep::checkpoint
