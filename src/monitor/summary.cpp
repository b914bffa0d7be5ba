#include "monitor/summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::monitor {

using json = nlohmann::ordered_json;

std::string summary_text(const Summary& s) {
  json j;
  j["job"] = json::object();
  for (auto& [key, value] : s.job) j["job"][key] = value;
  j["git"] = s.git;
  j["world"] = {{"ranks", s.ranks}, {"replicas", s.replicas}, {"devices", s.devices}, {"hosts", s.hosts}};
  j["steps"] = s.steps;
  j["epochs"] = s.epochs;
  j["samples"] = s.samples;
  j["train_loss"] = s.train_loss;
  j["eval"] = nullptr;
  if (s.eval)
    j["eval"] = {
        {"top1", s.eval->top1}, {"top5", s.eval->top5}, {"loss", s.eval->loss}, {"count", s.eval->count}};
  j["params_hash"] = s.params_hash;
  j["samples_per_second"] = s.samples_per_second;
  j["step_ms"] = {{"median", s.step_ms_median}, {"p95", s.step_ms_p95}};
  j["time"] = json::object();
  for (int i = 0; i < kPhases; ++i) j["time"][name_of(static_cast<Phase>(i))] = s.time[i];
  j["peak_host_bytes"] = s.peak_host_bytes;
  j["peak_device_bytes"] = s.peak_device_bytes;
  j["skipped_steps"] = s.skipped_steps;
  j["resumed_from"] = nullptr;
  if (!s.resumed_from.empty()) j["resumed_from"] = s.resumed_from;
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::filesystem::path partial = path;
  partial += ".partial";
  auto fail = [&] {
    int error = errno;
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw UserError(fmt::format("cannot write '{}'", path.string()), std::strerror(error),
                    "free space in its folder, or make it writable");
  };
  std::unique_ptr<std::FILE, Close> file(std::fopen(partial.c_str(), "we"));
  if (!file) fail();
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0 ||
      fsync(fileno(file.get())) != 0)
    fail();
  file.reset();
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail();
}

void write_summary(const std::filesystem::path& path, const Summary& s) {
  write_whole(path, summary_text(s));
}

}  // namespace lockstep::monitor
