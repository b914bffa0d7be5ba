// Names inside a directory of checkpoints.
//
//   step-00000120            a whole checkpoint: committed by the rename that gave it this name
//   step-00000120.partial    one being written
//   step-00000120.replaced   the former one of this step, while a new one takes its name
//   step-00000120.trash      one being deleted
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";

inline constexpr const char* kPartial = ".partial";
inline constexpr const char* kReplaced = ".replaced";
inline constexpr const char* kTrash = ".trash";

struct Entry {
  int64_t step = 0;
  std::string suffix;  ///< "", or one of the above
  std::filesystem::path path;
};

std::string step_name(int64_t step);  ///< 120 -> "step-00000120"

/// All entries of `directory` with names as above, newest step first, whole before replaced. Empty when there
/// is no such directory. Throws UserError when it cannot be read.
std::vector<Entry> list_entries(const std::filesystem::path& directory);

/// Removes what a killed save or pruning left behind, and gives a replaced checkpoint its name back when the
/// new one never took it, or is damaged. Only the process that writes checkpoints may call it.
void clean_stale(const std::filesystem::path& directory);

/// Removes a directory and all in it. Throws UserError.
void remove_directory(const std::filesystem::path& path);

/// Called by tests between any two changes to the disk with the name of the point; may throw or end the
/// process.
using FaultPoint = std::function<void(const std::string& point)>;

}  // namespace lockstep::checkpoint
