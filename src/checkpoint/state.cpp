#include "checkpoint/state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checkpoint/directory.h"

namespace lockstep::checkpoint {

using json = nlohmann::ordered_json;

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kHashKey = "\"xxh3\": \"";
constexpr size_t kHashDigits = 16;

// JSON has no NaN and no infinity.
static json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static double number(const json& j) {
  if (!j.is_string()) return j.get<double>();
  const auto& text = j.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error(fmt::format("'{}' is not a number", text));
}

static json record(uint64_t bytes, uint64_t xxh3) { return {{"bytes", bytes}, {"xxh3", hex64(xxh3)}}; }

std::string state_text(const State& s, std::span<const FileRecord> files) {
  json j;
  j["format"] = kFormat;
  j["version"] = kVersion;
  j["step"] = s.step;
  j["skipped_steps"] = s.skipped_steps;
  j["cursor"] = {{"epoch", s.epoch}, {"batch", s.batch}};
  j["seed"] = s.seed;
  j["shards"] = s.shards;
  j["micro_batch"] = s.micro_batch;
  j["values"] = json::object();
  for (auto& [key, value] : s.values) j["values"][key] = number(value);
  j["metric"] = nullptr;
  if (s.metric)
    j["metric"] = {{"name", s.metric->name},
                   {"value", number(s.metric->value)},
                   {"higher_is_better", s.metric->higher_is_better}};
  j["data"] = s.data;
  j["versions"] = s.versions;
  j["world"] = {{"ranks", s.ranks}, {"replicas", s.replicas}};
  j["job"] = s.job;
  j["files"] = json::object();
  for (const FileRecord& f : files) j["files"][f.name] = record(f.bytes, f.xxh3);

  std::string text;
  for (uint64_t bytes = 0; text.size() != bytes || bytes == 0;) {
    bytes = text.size();
    j["files"][kStateFile] = record(bytes, 0);
    text = j.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  text.replace(text.rfind(kHashKey) + std::string(kHashKey).size(), kHashDigits,
               hex64(xxh3(std::as_bytes(std::span(text)))));
  return text;
}

static void check_own_hash(std::string text) {
  size_t at = text.rfind(kHashKey);
  if (at == std::string::npos) throw std::runtime_error("it has no hash of itself");
  at += std::string(kHashKey).size();
  if (at + kHashDigits > text.size()) throw std::runtime_error("it has no hash of itself");
  std::string stated = text.substr(at, kHashDigits);
  text.replace(at, kHashDigits, kHashDigits, '0');
  std::string found = hex64(xxh3(std::as_bytes(std::span(text))));
  if (found != stated)
    throw std::runtime_error(fmt::format("its xxh3 is '{}', '{}' was written", found, stated));
}

ParsedState parse_state(const std::string& text) {
  check_own_hash(text);
  try {
    json j = json::parse(text);
    if (j.at("format") != kFormat) throw std::runtime_error("it is of another format");
    if (int version = j.at("version"); version != kVersion)
      throw std::runtime_error(fmt::format("its version is '{}', this build reads '{}'", version, kVersion));
    ParsedState parsed;
    State& s = parsed.state;
    j.at("step").get_to(s.step);
    j.at("skipped_steps").get_to(s.skipped_steps);
    j.at("cursor").at("epoch").get_to(s.epoch);
    j.at("cursor").at("batch").get_to(s.batch);
    j.at("seed").get_to(s.seed);
    j.at("shards").get_to(s.shards);
    j.at("micro_batch").get_to(s.micro_batch);
    for (auto& [key, value] : j.at("values").items()) s.values[key] = number(value);
    if (const json& m = j.at("metric"); !m.is_null())
      s.metric = Metric{m.at("name"), number(m.at("value")), m.at("higher_is_better")};
    j.at("data").get_to(s.data);
    j.at("versions").get_to(s.versions);
    j.at("world").at("ranks").get_to(s.ranks);
    j.at("world").at("replicas").get_to(s.replicas);
    j.at("job").get_to(s.job);
    for (auto& [name, f] : j.at("files").items()) {
      uint64_t bytes = f.at("bytes");
      if (name != kStateFile)
        parsed.files.push_back({name, bytes, std::stoull(f.at("xxh3").get<std::string>(), nullptr, 16)});
      else if (bytes != text.size())
        throw std::runtime_error(fmt::format("it has '{}' bytes, '{}' were written", text.size(), bytes));
    }
    return parsed;
  } catch (const json::exception& e) {
    throw std::runtime_error(e.what());
  }
}

}  // namespace lockstep::checkpoint
