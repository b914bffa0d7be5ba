#include "monitor/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::monitor {

using json = nlohmann::ordered_json;

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t resumed_step)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0)
    throw UserError(fmt::format("cannot open '{}'", path.string()), std::strerror(errno),
                    "make run.dir writable, or choose another");
  keep_until(resumed_step);
}

MetricsLog::~MetricsLog() { close(fd_); }

void MetricsLog::keep_until(int64_t step) {
  std::ifstream in(path_);
  off_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof(); kept += static_cast<off_t>(line.size()) + 1) {
    json j = json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer() || j["step"] > step) break;
    (j.value("type", "") == "eval" ? last_eval_ : last_train_) = j["step"];
  }
  if (ftruncate(fd_, kept) != 0)
    throw UserError(fmt::format("cannot shorten '{}' to step '{}'", path_.string(), step),
                    std::strerror(errno), "check the file system");
}

// A line that does not fit is taken back, so that the file stays one object a line.
void MetricsLog::append(const std::string& line) {
  struct stat before {};
  fstat(fd_, &before);
  ssize_t n = ::write(fd_, line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) return;
  failure_ =
      fmt::format("cannot write '{}': {}", path_.string(), n < 0 ? std::strerror(errno) : "no space left");
  if (n > 0 && ftruncate(fd_, before.st_size) != 0)
    failure_ = fmt::format("'{}' ends in half a line", path_.string());
}

void MetricsLog::write(const StepMetrics& m) {
  if (m.step <= last_train_) return;
  last_train_ = m.step;
  json j{{"type", "train"},
         {"step", m.step},
         {"epoch", m.epoch},
         {"loss", m.loss},
         {"lr", m.lr},
         {"gradient_norm", m.gradient_norm},
         {"samples_per_second", m.samples_per_second},
         {"step_ms", m.step_ms},
         {"time", json::object()},
         {"host_bytes", m.host_bytes},
         {"device_bytes", m.device_bytes},
         {"skipped_steps", m.skipped_steps},
         {"loss_scale", m.loss_scale}};
  for (int i = 0; i < kPhases; ++i) j["time"][name_of(static_cast<Phase>(i))] = m.time[i];
  append(j.dump() + "\n");
}

void MetricsLog::write(const EvaluationMetrics& m) {
  if (m.step <= last_eval_) return;
  last_eval_ = m.step;
  json j{{"type", "eval"}, {"step", m.step}, {"epoch", m.epoch}, {"loss", m.loss},
         {"top1", m.top1}, {"top5", m.top5}, {"count", m.count}, {"seconds", m.seconds}};
  append(j.dump() + "\n");
}

std::optional<std::string> MetricsLog::take_failure() {
  auto failure = std::move(failure_);
  failure_.reset();
  return failure;
}

}  // namespace lockstep::monitor
