// What a run prints: header, one line a log interval, evaluations, the end. Functions from values to strings;
// the console writes them.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "monitor/metrics.h"
#include "monitor/summary.h"
#include "monitor/table.h"

namespace lockstep::monitor {

/// One line without a newline, columns of fixed width:
/// step  120/1170  epoch  0.10  loss 0.4312  lr  0.0500  gnorm  1.84   9,512 img/s    41.2 ms (data  0% comm
/// 3%) mem 1.2 GiB  eta 00:00:43. `unit` is what a sample is called. Skipped steps are shown once there are
/// any.
std::string step_line(const StepMetrics& m, const std::string& unit, bool color);

/// One line without a newline: step, epoch, top-1, top-5 in percent, loss, exact count, time.
std::string evaluation_line(const EvaluationMetrics& m, bool color);

struct JobRow {
  std::string key, value;
  std::string origin;  ///< where the value came from: "default", "jobs/x.ini:12", ...
};
struct WorldRow {
  int rank = 0;
  std::string host, device;
  std::string cores;  ///< as a list: "0-7"
  int threads = 0;
  int replica = 0;  ///< of its rank
};
struct Header {
  std::vector<JobRow> job;
  std::vector<WorldRow> world;
  std::string model;
  int64_t parameters = 0, parameter_bytes = 0;
  int64_t micro_batch = 0, global_batch = 0, accumulation = 0, shards = 0;
  int64_t samples = 0, steps_per_epoch = 0;
  int64_t steps = 0;   ///< of the whole run; 0: only time ends it
  double minutes = 0;  ///< limit on time; 0: none
  std::vector<std::pair<std::string, uint64_t>>
      memory;  ///< by purpose, bytes on each device; the sum is added
};
/// The tables before the first step. Of a large world the first and the last ranks are shown.
std::string header(const Header& h, bool color);

/// The block after the last step: result, speed, where everything was written (pairs of what and path).
std::string final_block(const Summary& s, const std::vector<std::pair<std::string, std::string>>& written,
                        bool color);

/// "warning: " and the lines of `text`.
std::string warning(const std::string& text, bool color);

/// Writes blocks of text as they are, flushed. One thread.
class Console {
 public:
  /// `out` is not closed.
  explicit Console(std::FILE* out = stdout, ColorMode mode = ColorMode::automatic);
  bool color() const { return color_; }
  /// Adds a newline where the text has none.
  void print(const std::string& text);

 private:
  std::FILE* out_;
  bool color_;
};

}  // namespace lockstep::monitor
