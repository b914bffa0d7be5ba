// Finding, verifying and comparing checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"
#include "checkpoint/tensors.h"

namespace lockstep::checkpoint {

struct Checkpoint {
  std::filesystem::path path;
  State state;
  /// Open the files; throw UserError.
  SafetensorsFile model() const { return SafetensorsFile(path / kModelFile); }
  SafetensorsFile optimizer() const { return SafetensorsFile(path / kOptimizerFile); }
};

enum class Verify {
  sizes,  ///< state.json whole, every file there and of the stated size: no tensor is read
  all     ///< every byte, by hash
};

/// One checkpoint. Throws UserError when `path` is none, or is damaged (saying what).
Checkpoint load_checkpoint(const std::filesystem::path& path, Verify verify = Verify::all);

struct Damaged {
  std::filesystem::path path;
  std::string why;
};
struct Latest {
  std::optional<Checkpoint> checkpoint;  ///< the newest that verifies
  std::vector<Damaged> damaged;          ///< newer ones that do not, newest first
};
/// Changes nothing on the disk. A directory that is missing or empty gives no checkpoint.
Latest find_latest(const std::filesystem::path& directory);
/// The checkpoint of `latest`, which find_latest() gave for `directory`. Throws UserError when there is none,
/// naming the damaged ones.
Checkpoint require(Latest latest, const std::filesystem::path& directory);

/// How a file differs from what a model expects. Lines say the name, and both shapes where they differ.
struct Differences {
  std::vector<std::string> missing, extra, misshapen;
  bool empty() const { return missing.empty() && extra.empty() && misshapen.empty(); }
};
/// Names and shapes; in dtype, any float may stand for f32, every other must be equal.
Differences compare(const SafetensorsFile& file, std::span<const TensorSpec> expected);

/// For checkpoints: throws UserError naming the first tensor, in the order of `expected`, that differs.
void require_same_model(const SafetensorsFile& file, std::span<const TensorSpec> expected);

/// For model.weights: throws UserError listing every missing, extra and misshapen name.
void require_weights(const SafetensorsFile& file, std::span<const TensorSpec> expected);

}  // namespace lockstep::checkpoint
