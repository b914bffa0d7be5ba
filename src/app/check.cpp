#include "app/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/options.h"
#include "core/error.h"
#include "core/text.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

// What is said of a path for which fs::exists() gave false and `error`.
std::string not_there(const std::error_code& error) {
  return error ? " cannot be read: " + error.message() : " does not exist";
}

class Check {
 public:
  Check(Invocation& invocation, std::vector<std::string>& problems) : in_(invocation), problems_(problems) {
    for (const Option& o : options(in_.job)) values_[o.key] = o.get();
    const std::vector<Command> known = commands();
    command_ = *std::ranges::find(known, in_.command, &Command::name);
  }

  bool given(const std::string& key) const { return in_.origin.at(key) != kDefaultOrigin; }
  /// "optim.momentum '0' (job.ini:7)"
  std::string said(const std::string& key) const {
    return fmt::format("{} '{}' ({})", key, values_.at(key), in_.origin.at(key));
  }
  void refuse(const std::string& text) { problems_.push_back(printable(text)); }
  void warn_unused(const std::string& key, const std::string& why) {
    if (given(key)) in_.warnings.push_back(said(key) + " has no effect: " + why);
  }

  void file(const std::string& key) {
    const std::string& path = values_.at(key);
    if (path.empty()) return;
    std::error_code error;
    if (!fs::exists(path, error))
      refuse(said(key) + not_there(error));
    else if (fs::is_directory(path, error))
      refuse(said(key) + " is a folder, not a file");
    else if (!fs::is_regular_file(path, error))
      refuse(said(key) + " is a pipe, socket or device, not a file");
    else if (access(path.c_str(), R_OK) != 0)
      refuse(said(key) + " cannot be read");
  }

  void command();
  void files();
  void limits();
  void optimizer();
  void schedule();
  void batch();
  void transforms();
  void checkpoints();
  void parallel();

 private:
  Invocation& in_;
  std::vector<std::string>& problems_;
  std::map<std::string, std::string> values_;
  Command command_;
};

// A job file serves all commands; what was typed for this one should count.
void Check::command() {
  for (const Option& o : options(in_.job))
    if (!command_.reads(o) && typed(in_, o.key))
      warn_unused(o.key, "'" + command_.name + "' does not read it");
}

void Check::files() {
  for (const Option& o : options(in_.job))
    if (o.unit == "FILE" && command_.reads(o)) file(o.key);
  const char* needed = trains(in_) ? "data.train" : "data.eval";
  if (values_.at(needed).empty() && !in_.built_in)
    refuse(
        fmt::format("{} is not set; '{}' needs an HDF5 file that datatool has packed", needed, in_.command));
}

void Check::limits() {
  const auto& t = in_.job.train;
  if (t.epochs == 0 && t.steps == 0 && t.minutes == 0)
    refuse("training would never end: " + said("train.epochs") +
           ", train.steps and train.minutes are all '0'; set one of them");
  if (in_.job.data.eval.empty() && !in_.built_in)
    for (const char* key : {"train.eval_every", "train.eval_every_steps"})
      warn_unused(key, "data.eval is not set");
}

void Check::optimizer() {
  const auto& o = in_.job.optim;
  if (o.name == "sgd") {
    for (const char* key : {"optim.beta1", "optim.beta2", "optim.eps"})
      warn_unused(key, "optim.name is 'sgd'");
    if (o.nesterov && o.momentum == 0)
      refuse(said("optim.nesterov") + " needs a momentum, but " + said("optim.momentum"));
  } else {
    for (const char* key : {"optim.momentum", "optim.nesterov"})
      warn_unused(key, "optim.name is '" + o.name + "'");
  }
}

void Check::schedule() {
  const auto& s = in_.job.schedule;
  if (s.name != "step") warn_unused("schedule.step_size", said("schedule.name"));
  if (s.name != "multistep") warn_unused("schedule.milestones", said("schedule.name"));
  if (s.name != "step" && s.name != "multistep") warn_unused("schedule.gamma", said("schedule.name"));
  if (s.name != "polynomial") warn_unused("schedule.power", said("schedule.name"));
  if (s.name == "constant") warn_unused("schedule.min_lr", said("schedule.name"));
  if (s.warmup == 0) warn_unused("schedule.warmup_start", said("schedule.warmup"));
  // The true lengths come with the data; until then a long run of long epochs hides what depends on them.
  const bool ends = in_.job.train.epochs != 0 || in_.job.train.steps != 0;
  try {
    train::check(s, in_.job.optim.lr, ends ? int64_t{1} << 50 : 0, 1'000'000);
  } catch (const UserError& e) {
    refuse(fmt::format("{}: {}; {}", e.headline(), e.why(), e.todo()));
  }
}

void Check::parallel() {
  auto& p = in_.job.parallel;
  if (in_.job.amp.mode != nn::Precision::fp16)
    for (const char* key :
         {"amp.init_scale", "amp.growth_factor", "amp.backoff_factor", "amp.growth_interval"})
      warn_unused(key, said("amp.mode"));
  if (p.collective.compress != Dtype::f32) {
    if (p.collective.reduction == comm::Reduction::exact)
      refuse(said("parallel.compress") + " and " + said("parallel.reduction") +
             " contradict each other: what a rank sends is rounded, so the result depends on the layout; use "
             "--reduction fast, or no compression");
    if (p.dp_sync == "root")
      refuse(said("parallel.compress") + " needs parallel.dp_sync 'allreduce', not " +
             said("parallel.dp_sync"));
  }
  std::vector<int> sorted = p.devices;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    refuse(fmt::format("{} names device '{}' twice: a device holds one replica", said("parallel.devices"),
                       *twice));
  if (p.devices.empty()) return;
  const auto listed = static_cast<int>(p.devices.size());
  if (!given("parallel.replicas")) {
    p.replicas = listed;
    in_.origin["parallel.replicas"] = kWorkedOut;
  } else if (p.replicas != listed) {
    refuse(fmt::format("{} and {} contradict each other: '{}' replicas, '{}' devices",
                       said("parallel.replicas"), said("parallel.devices"), p.replicas, listed));
  }
}

void Check::batch() {
  const auto& b = in_.job.batch;
  const int64_t known = (b.micro ? b.micro : 1) * (b.accumulation ? b.accumulation : 1);
  if (b.global != 0 && b.global % known != 0)
    refuse(fmt::format("{} is no multiple of batch.micro x batch.accumulation = '{}'", said("batch.global"),
                       known));
}

void Check::transforms() {
  const auto& t = in_.job.transforms;
  if (t.random_resized_crop) {
    if (t.size == 0) refuse(said("data.random_resized_crop") + " needs data.size, the size to resize to");
    if (t.pad != 0)
      refuse(said("data.random_resized_crop") + " and " + said("data.pad") + " both crop; choose one");
    if (t.scale_min > t.scale_max) refuse(said("data.scale_min") + " is more than " + said("data.scale_max"));
    if (t.ratio_min > t.ratio_max) refuse(said("data.ratio_min") + " is more than " + said("data.ratio_max"));
  } else {
    for (const char* key : {"data.scale_min", "data.scale_max", "data.ratio_min", "data.ratio_max"})
      warn_unused(key, said("data.random_resized_crop"));
  }
  if (t.mean.empty() != t.std.empty())
    refuse(said("data.mean") + " and " + said("data.std") + " go together; set both or neither");
}

void Check::checkpoints() {
  if (in_.command == "verify" || in_.command == "compare") return;  // they know no checkpoints
  const auto& c = in_.job.checkpoint;
  const bool path = c.resume != "never" && c.resume != "auto";
  std::error_code error;
  if (path && !fs::exists(c.resume, error)) refuse(said("checkpoint.resume") + not_there(error));
  // Training may start from weights, and go on from its own checkpoints when it is started again.
  const bool both = path || (in_.command == "evaluate" && c.resume == "auto");
  if (both && !in_.job.model.weights.empty())
    refuse(said("checkpoint.resume") + " and " + said("model.weights") +
           " both give the parameters; choose one");
  if (in_.command == "train" && c.best != "none" && in_.job.data.eval.empty() && !in_.built_in)
    refuse(said("checkpoint.best") + " needs evaluations, but data.eval is not set");
  if (trains(in_)) return;
  if (c.resume == "never" && in_.job.model.weights.empty())
    refuse(
        "'evaluate' needs parameters: give --resume auto, --resume PATH (a checkpoint or run) or "
        "--model.weights FILE");
}

}  // namespace

void check(Invocation& invocation, std::vector<std::string>& problems) {
  Check c(invocation, problems);
  c.command();
  c.files();
  c.checkpoints();
  c.transforms();
  c.parallel();
  if (!trains(invocation)) return;
  if (invocation.command == "train") c.limits();
  c.optimizer();
  c.schedule();
  c.batch();
}

}  // namespace lockstep::app
