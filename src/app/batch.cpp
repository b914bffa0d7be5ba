#include "app/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::app {
namespace {

std::string list(const std::vector<int64_t>& values) {
  std::vector<std::string> quoted;
  for (int64_t v : values) quoted.push_back(fmt::format("'{}'", v));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

/// The multiples of `unit` next to `value`.
std::vector<int64_t> multiples_near(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below > 0 ? std::vector{below, below + unit} : std::vector{unit};
}

/// Up to four divisors of `value`, the nearest to `wanted` first.
std::vector<int64_t> divisors_near(int64_t value, int64_t wanted) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d * d <= value; ++d)
    if (value % d == 0) {
      found.push_back(d);
      if (d != value / d) found.push_back(value / d);
    }
  std::ranges::sort(found, {}, [&](int64_t d) { return std::pair(d > wanted ? d - wanted : wanted - d, d); });
  if (found.size() > 4) found.resize(4);
  return found;
}

std::string would_do(const char* key, const std::vector<int64_t>& values) {
  return values.empty() ? "" : fmt::format("{} {}", key, list(values));
}

UserError does_not_divide(int64_t global, int64_t micro, int64_t accumulation, int64_t devices,
                          const std::vector<std::string>& remedies) {
  std::vector<std::string> known;
  for (const std::string& r : remedies)
    if (!r.empty()) known.push_back(r);
  const std::string shard = micro ? fmt::format("batch.micro '{}'", micro) : "batch.micro";
  const std::string rounds =
      accumulation ? fmt::format("batch.accumulation '{}'", accumulation) : "batch.accumulation";
  return UserError(
      fmt::format("batch.global '{}' cannot be shared out on '{}' devices", global, devices),
      fmt::format("batch.global = {} x {} x devices '{}', all whole numbers; the known factors give '{}'",
                  shard, rounds, devices, (micro ? micro : 1) * (accumulation ? accumulation : 1) * devices),
      fmt::format("these would do: {}", fmt::join(known, "; or ")));
}

}  // namespace

train::BatchPlan resolve_batch(const train::BatchOptions& batch, int64_t devices) {
  const int64_t global = batch.global;
  int64_t micro = batch.micro, accumulation = batch.accumulation;
  if (global == 0) {
    if (micro == 0) micro = kDefaultMicroBatch;
    if (accumulation == 0) {
      const auto fitting = [&](int64_t unit) {
        return static_cast<int64_t>(
            std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, kDefaultGlobalBatch / unit))));
      };
      accumulation = fitting(micro * devices);
      const int64_t reached = micro * accumulation * devices;
      const bool usual = reached == kDefaultGlobalBatch || reached == 8 * micro * fitting(8 * micro);
      return {micro, reached, accumulation, accumulation * devices, !usual};
    }
    return {micro, micro * accumulation * devices, accumulation, accumulation * devices, true};
  }
  if (micro == 0 && accumulation == 0) micro = std::min(global, kDefaultMicroBatch);
  const int64_t known = (micro ? micro : 1) * (accumulation ? accumulation : 1) * devices;
  const int64_t rest = global / known;
  const bool fits = global % known == 0 && (rest == 1 || micro == 0 || accumulation == 0);
  if (!fits) {
    const bool all_given = micro && accumulation;
    // Values for the factor that `others` (the product of the rest that is known) leaves open.
    const auto factors = [&](const char* key, int64_t factor, int64_t others) {
      if (factor == 0 || global % others != 0) return std::string();
      return would_do(key, all_given ? std::vector{global / others} : divisors_near(global / others, factor));
    };
    const int64_t unit = batch.micro || accumulation ? known : kDefaultMicroBatch * devices;
    throw does_not_divide(
        global, micro, accumulation, devices,
        {would_do("batch.global", all_given ? std::vector{known} : multiples_near(global, unit)),
         factors("batch.micro", micro, std::max<int64_t>(accumulation, 1) * devices),
         factors("batch.accumulation", accumulation, std::max<int64_t>(micro, 1) * devices),
         factors("devices", devices, known / devices)});
  }
  if (accumulation == 0) accumulation = rest;
  if (micro == 0) micro = rest;
  return {micro, global, accumulation, accumulation * devices, false};
}

void check_exact(const train::BatchPlan& plan, int64_t devices) {
  if (std::has_single_bit(static_cast<uint64_t>(devices))) return;
  std::vector<int64_t> sizes;
  for (int64_t d = 1; plan.shards % d == 0 && sizes.size() < 12; d *= 2) sizes.push_back(d);
  throw UserError(
      fmt::format("parallel.reduction 'exact' cannot sum '{}' shards on '{}' devices", plan.shards, devices),
      "the devices share out one fixed tree over the shards, which goes for powers of two that divide them; "
      "shards = batch.global / batch.micro",
      fmt::format("use {} devices for this batch, or --reduction fast", list(sizes)));
}

}  // namespace lockstep::app
