// metrics.jsonl: one JSON object a line, of type "train" (a log interval) or "eval".
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "monitor/metrics.h"

namespace lockstep::monitor {

/// Appends line by line; each is handed to the system before the call returns. No step appears twice in a
/// type.
class MetricsLog {
 public:
  /// Opens or makes the file. What it holds beyond `resumed_step` (0: a new run), or as half a line, is cut
  /// off. Throws UserError.
  MetricsLog(const std::filesystem::path& path, int64_t resumed_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// A step that is in the file already (before a resume) is not written again.
  void write(const StepMetrics& m);
  void write(const EvaluationMetrics& m);

  /// Why the last line could not be written, once; training does not stop for it.
  std::optional<std::string> take_failure();

 private:
  void append(const std::string& line);
  void keep_until(int64_t step);
  std::filesystem::path path_;
  int fd_;
  int64_t last_train_ = -1, last_eval_ = -1;
  std::optional<std::string> failure_;
};

}  // namespace lockstep::monitor
