// summary.json: a run in numbers, for scripts and tests.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "monitor/metrics.h"

namespace lockstep::monitor {

struct Summary {
  std::vector<std::pair<std::string, std::string>> job;  ///< every option, resolved: "batch.micro" -> "16"
  std::string git;                                       ///< revision of the build
  int ranks = 1, replicas = 1, devices = 1;              ///< replicas: of each rank
  std::vector<std::string> hosts;                        ///< distinct
  int64_t steps = 0;
  double epochs = 0;
  int64_t samples = 0;
  double train_loss = 0;                  ///< of the last log interval
  std::optional<EvaluationMetrics> eval;  ///< the last one
  std::string params_hash;
  double samples_per_second = 0;
  double step_ms_median = 0, step_ms_p95 = 0;
  PhaseFractions time{};
  uint64_t peak_host_bytes = 0, peak_device_bytes = 0;
  int64_t skipped_steps = 0;
  std::string resumed_from;  ///< a checkpoint's path; empty: none
};

/// The text of summary.json. Numbers that are not finite are null, as is what there is none of.
std::string summary_text(const Summary& s);

/// Writes `path`.partial, fsyncs, renames: readers see a whole file or none. Throws UserError.
void write_whole(const std::filesystem::path& path, const std::string& text);
/// summary_text(), in that way.
void write_summary(const std::filesystem::path& path, const Summary& s);

}  // namespace lockstep::monitor
