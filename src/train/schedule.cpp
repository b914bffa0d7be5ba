#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace lockstep::train {
namespace {

int64_t in_steps(const ScheduleOptions& o, double length, int64_t steps_per_epoch) {
  return std::llround(o.unit == "epochs" ? length * static_cast<double>(steps_per_epoch) : length);
}

int64_t decays(const ScheduleOptions& o, int64_t step, int64_t steps_per_epoch) {
  if (o.name == "step") return step / std::max<int64_t>(1, in_steps(o, o.step_size, steps_per_epoch));
  return std::count_if(o.milestones.begin(), o.milestones.end(),
                       [&](double at) { return step >= in_steps(o, at, steps_per_epoch); });
}

void require(bool ok, const std::string& what, const std::string& why, const std::string& todo) {
  if (!ok) throw UserError(what, why, todo);
}

void require_word(const std::string& key, const std::string& word, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  const std::string near = nearest(word, known);
  throw UserError(fmt::format("unknown {} '{}'", key, word),
                  fmt::format("known are '{}'", fmt::join(known, "', '")),
                  near.empty() ? "use one of these" : fmt::format("did you mean '{}'?", near));
}

}  // namespace

void check(const ScheduleOptions& o, double base_lr, int64_t total_steps, int64_t steps_per_epoch) {
  require_word("schedule.name", o.name, {"constant", "step", "multistep", "cosine", "polynomial"});
  require_word("schedule.unit", o.unit, {"epochs", "steps"});
  const auto value = [](const std::string& key, double v) {
    return fmt::format("schedule.{} is '{}'", key, v);
  };
  require(o.warmup >= 0, value("warmup", o.warmup), "a warm-up has no negative length", "give 0 or more");
  require(o.warmup_start >= 0 && o.warmup_start <= 1, value("warmup_start", o.warmup_start),
          "it is the factor that warm-up rises from", "give a factor from 0 to 1");
  require(o.min_lr >= 0 && o.min_lr <= base_lr, value("min_lr", o.min_lr),
          fmt::format("the schedule falls from optim.lr '{}' to it", base_lr),
          "give a value from 0 to optim.lr");

  const bool decaying = o.name == "step" || o.name == "multistep";
  require(!decaying || (o.gamma > 0 && o.gamma <= 1), value("gamma", o.gamma),
          "it multiplies the learning rate at each decay", "give a factor above 0 and up to 1");
  require(o.name != "step" || in_steps(o, o.step_size, steps_per_epoch) >= 1, value("step_size", o.step_size),
          "that is less than one step", "give a larger distance between decays");
  require(o.name != "multistep" || !o.milestones.empty(), "schedule.milestones is empty",
          "schedule.name 'multistep' decays at these", "list them, or choose another schedule");
  for (size_t i = 0; i < o.milestones.size(); ++i)
    require(o.milestones[i] > (i ? o.milestones[i - 1] : 0),
            fmt::format("schedule.milestones has '{}' at place '{}'", o.milestones[i], i + 1),
            "milestones are positive and ascend", "sort them and drop what repeats");

  const bool shaped = o.name == "cosine" || o.name == "polynomial";
  require(!shaped || total_steps > 0, fmt::format("schedule.name '{}' in a run of no known length", o.name),
          "it spans the whole run",
          "set train.epochs or train.steps, or use 'constant', 'step' or 'multistep'");
  require(o.name != "polynomial" || o.power > 0, value("power", o.power), "it is the exponent of the decay",
          "give a number above 0");
}

double lr(const ScheduleOptions& o, double base_lr, int64_t step, int64_t total_steps,
          int64_t steps_per_epoch) {
  const int64_t warmup = in_steps(o, o.warmup, steps_per_epoch);
  double ramp = 1;
  if (step < warmup)
    ramp = o.warmup_start + (1 - o.warmup_start) * static_cast<double>(step) / static_cast<double>(warmup);

  if (o.name == "step" || o.name == "multistep") {
    const double decayed = base_lr * std::pow(o.gamma, static_cast<double>(decays(o, step, steps_per_epoch)));
    return ramp * std::max(decayed, o.min_lr);
  }
  if (o.name == "constant" || step < warmup) return ramp * base_lr;

  const double progress =
      std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  const double shape = o.name == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                                          : std::pow(1 - progress, o.power);
  return o.min_lr + (base_lr - o.min_lr) * shape;
}

}  // namespace lockstep::train
