#include "app/options.h"

#include <algorithm>
#include <iterator>

#include "models/registry.h"

namespace lockstep::app {
namespace {

using Table = std::vector<Option>;

// Far beyond any use, and so small that no product of them overflows.
constexpr double kMostSamples = 1e6, kMostGlobal = 1 << 24 /* counts are exact in float */, kMostEpochs = 1e6,
                 kMostSteps = 1e12, kMostPixels = 65536;

void append(Table& all, Table section) { std::ranges::move(section, std::back_inserter(all)); }

Option input_file(std::string key, std::string& field, std::string help) {
  Option o = text(std::move(key), "FILE", field, std::move(help));
  o.input_path = true;
  return o;
}

/// May differ between the hosts of a run, and does not change its result.
Option local(Option o) {
  o.identity = false;
  return o;
}

Table model(ModelChoice& m) {
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::list()) names.push_back(info.name);
  Option name = word("model.name", m.name, names, "one of the models listed by 'trainer --help'");
  name.unit = "NAME";
  name.accepts = "";
  return {name, input_file("model.weights", m.weights, "safetensors file with the parameters to start from"),
          number("model.dropout", "P", m.dropout, from_to_below(0, 1),
                 "dropout before the classifier; empty: the model's default"),
          flag("model.sync_batch_norm", m.sync_batch_norm,
               "statistics of batch norm over the shards that all devices train at the same time")};
}

Table data(train::DataOptions& d) {
  return {local(input_file("data.train", d.train, "HDF5 file to train on")),
          local(input_file("data.eval", d.eval, "HDF5 file to evaluate on; empty: no evaluation")),
          flag("data.drop_last", d.drop_last, "leave out the last, partial global batch of an epoch"),
          local(number("data.threads", "N", d.threads, from_to(0, 256),
                       "loader threads of a rank; 0 decodes within the step")),
          local(number("data.prefetch", "N", d.prefetch, from_to(1, 1024), "micro-batches decoded ahead"))};
}

Table train(train::TrainOptions& t) {
  return {
      number("train.epochs", "epochs", t.epochs, from_to(0, kMostEpochs),
             "passes over the data; 0: no limit. Where only train.steps is given, that alone is the limit"),
      number("train.steps", "steps", t.steps, from_to(0, kMostSteps), "taken optimizer steps; 0: no limit"),
      number("train.minutes", "min", t.minutes, at_least(0), "wall time of one start; 0: no limit"),
      number("train.seed", "N", t.seed, at_least(0), "of initialisation, order, augmentation and dropout"),
      number("train.eval_every", "epochs", t.eval_every, from_to(0, kMostEpochs),
             "between evaluations; 0: at the end only"),
      number("train.eval_every_steps", "steps", t.eval_every_steps, from_to(0, kMostSteps),
             "between evaluations, besides those by epoch; 0: off"),
      number("train.label_smoothing", "X", t.label_smoothing, from_to_below(0, 1),
             "as PyTorch's CrossEntropyLoss"),
      number("train.ema_decay", "X", t.ema_decay, from_to_below(0, 1),
             "of the moving average of the weights, which is then what is evaluated; 0: off")};
}

Table batch(train::BatchOptions& b) {
  return {number("batch.micro", "samples", b.micro, from_to(0, kMostSamples),
                 "of a shard, one forward and backward of one device; 0: worked out"),
          number("batch.global", "samples", b.global, from_to(0, kMostGlobal),
                 "of a step over all devices; 0: worked out"),
          number("batch.accumulation", "shards", b.accumulation, from_to(0, kMostSamples),
                 "of a step on each device; 0: worked out")};
}

Table optim(train::OptimOptions& o) {
  return {word("optim.name", o.name, {"sgd", "adamw"}, "torch.optim.SGD or AdamW"),
          number("optim.lr", "X", o.lr, at_least(0), "base learning rate"),
          number("optim.momentum", "X", o.momentum, from_to_below(0, 1), "sgd"),
          flag("optim.nesterov", o.nesterov, "sgd: Nesterov's momentum"),
          number("optim.weight_decay", "X", o.weight_decay, at_least(0),
                 "sgd: added to the gradient; adamw: decoupled"),
          flag("optim.decay_norm_bias", o.decay_norm_bias, "decay biases and normalisation parameters too"),
          number("optim.beta1", "X", o.beta1, from_to_below(0, 1), "adamw"),
          number("optim.beta2", "X", o.beta2, from_to_below(0, 1), "adamw"),
          number("optim.eps", "X", o.eps, more_than(0), "adamw"),
          number("optim.clip_norm", "X", o.clip_norm, at_least(0),
                 "largest global L2 norm of the gradient; 0: off")};
}

Table schedule(train::ScheduleOptions& s) {
  return {
      word("schedule.name", s.name, {"constant", "step", "multistep", "cosine", "polynomial"},
           "of the learning rate, by taken step"),
      word("schedule.unit", s.unit, {"epochs", "steps"}, "that warmup, step_size and milestones count in"),
      number("schedule.warmup", "units", s.warmup, at_least(0), "length of the linear warm-up; 0: none"),
      number("schedule.warmup_start", "X", s.warmup_start, from_to(0, 1),
             "factor on the learning rate that warm-up rises from"),
      number("schedule.gamma", "X", s.gamma, {.low = 0, .high = 1, .above_low = true},
             "step, multistep: factor at each decay"),
      number("schedule.step_size", "units", s.step_size, more_than(0), "step: distance between decays"),
      number_list("schedule.milestones", "units", s.milestones, more_than(0),
                  "multistep: where to decay, ascending"),
      number("schedule.power", "X", s.power, more_than(0), "polynomial: exponent; 1 is linear"),
      number("schedule.min_lr", "X", s.min_lr, at_least(0),
             "cosine, polynomial: value at the end; step, multistep: never below")};
}

Table transforms(data::TransformOptions& t) {
  return {
      number("data.size", "pixels", t.size, from_to(0, kMostPixels),
             "height and width that the model sees; 0: as stored, or as resized"),
      number("data.resize", "pixels", t.resize, from_to(0, kMostPixels),
             "shorter side after the resize that comes before the crop; 0: no resize"),
      number("data.pad", "pixels", t.pad, from_to(0, kMostPixels),
             "training: zeros added on each side before a random crop"),
      flag("data.flip", t.flip, "training: mirror left to right, half of the time"),
      flag("data.random_resized_crop", t.random_resized_crop,
           "training: a random part of the image, resized to data.size"),
      number("data.scale_min", "X", t.scale_min, {.low = 0, .high = 1, .above_low = true},
             "smallest part of the area that random_resized_crop takes"),
      number("data.scale_max", "X", t.scale_max, {.low = 0, .high = 1, .above_low = true},
             "largest part of the area that random_resized_crop takes"),
      number("data.ratio_min", "X", t.ratio_min, more_than(0), "smallest width / height of that part"),
      number("data.ratio_max", "X", t.ratio_max, more_than(0), "largest width / height of that part"),
      number_list("data.mean", "X", t.mean, {}, "of each channel, of pixels in [0, 1]; empty: data.train's"),
      number_list("data.std", "X", t.std, more_than(0),
                  "of each channel, of pixels in [0, 1]; empty: data.train's")};
}

Table parallel(train::ParallelOptions& p) {
  return {
      number("parallel.replicas", "N", p.replicas, from_to(1, 1024),
             "devices that each rank drives, one thread each"),
      local(number_list("parallel.devices", "N", p.devices, from_to(0, 1023),
                        "which of its devices a rank drives; empty: the first ones")),
      word("parallel.dp_sync", p.dp_sync, {"allreduce", "root"},
           "allreduce: every device updates its parameters; root: device 0 does and sends them"),
      number("parallel.check_every", "steps", p.check_every, from_to(0, kMostSteps),
             "between comparisons of the parameters of all devices; 0: never"),
      choice("parallel.compress", p.collective.compress,
             {{"off", Dtype::f32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::f16}},
             "half precision for gradients between ranks; with reduction fast"),
      choice(
          "parallel.reduction", p.collective.reduction,
          {{"exact", comm::Reduction::exact}, {"fast", comm::Reduction::fast}},
          "exact: one fixed order of summation, the same bits on any number of devices; fast: MPI's order"),
      local(number("parallel.timeout", "s", p.collective.timeout, more_than(0),
                   "without progress before the run is ended")),
      number("parallel.bucket_mib", "MiB", p.bucket_mib, from_to(0.0625, 1024),
             "gradients reduced in one operation, while the rest of backward runs")};
}

Table amp(train::AmpOptions& a) {
  return {choice("amp.mode", a.mode,
                 {{"off", nn::Precision::fp32}, {"bf16", nn::Precision::bf16}, {"fp16", nn::Precision::fp16}},
                 "half precision for convolutions, matrix products and what lies between them"),
          number("amp.init_scale", "X", a.scaler.init_scale, from_to(1, 0x1p40), "fp16: first loss scale"),
          number("amp.growth_factor", "X", a.scaler.growth_factor, more_than(1),
                 "fp16: of the scale after amp.growth_interval good steps in a row"),
          number("amp.backoff_factor", "X", a.scaler.backoff_factor,
                 {.low = 0, .high = 1, .below_high = true, .above_low = true},
                 "fp16: of the scale after a step whose gradients were not finite"),
          number("amp.growth_interval", "steps", a.scaler.growth_interval, from_to(1, kMostSteps),
                 "fp16: good steps in a row before the scale grows")};
}

Table checkpoint(train::CheckpointOptions& c) {
  Option resume = text("checkpoint.resume", "never|auto|PATH", c.resume,
                       "auto: the newest whole checkpoint of run.dir (of the job's newest run), if any; "
                       "PATH: a checkpoint or run");
  resume.input_path = true;
  return {number("checkpoint.every", "steps", c.every, from_to(0, kMostSteps),
                 "between checkpoints; 0: at the end and on a stop signal only"),
          number("checkpoint.keep", "N", c.keep, from_to(1, kMostSteps),
                 "newest checkpoints kept, besides the best"),
          resume,
          word("checkpoint.best", c.best, {"none", "top1", "top5", "loss"},
               "evaluation metric whose best checkpoint is kept")};
}

Table run(train::RunOptions& r) {
  return {local(text("run.dir", "DIR", r.dir, "where the run writes; empty: the next free runs/JOB-NNNN")),
          local(word_list("run.signals", r.signals, {"USR1", "USR2", "TERM", "INT", "HUP"},
                          "signals that stop the run with a checkpoint and exit code 3"))};
}

Table log(train::LogOptions& l) {
  return {local(number("log.every", "steps", l.every, from_to(1, kMostSteps),
                       "between console lines and metrics records")),
          local(word("log.color", l.color, {"auto", "always", "never"},
                     "auto: on a terminal, unless NO_COLOR is set"))};
}

Table device(train::DeviceOptions& d) {
  return {local(word("device.name", d.name, {"auto", "cpu"}, "hardware to run on")),
          local(number("device.threads", "N", d.threads, from_to(0, 1024),
                       "compute threads of a device; 0: the cores of the affinity mask"))};
}

Table verify(VerifyOptions& v) {
  return {local(number("verify.max_ulp", "ULP", v.max_ulp, from_to(0, 1LL << 33),
                       "verify: largest distance of a value from one device's, in units in the last place"))};
}

Table compare(CompareOptions& c) {
  return {
      local(number("compare.memory_limit_mib", "MiB", c.memory_limit_mib, from_to(0, 1LL << 30),
                   "compare: memory of a device, for the largest micro-batch; 0: its part of the host's"))};
}

}  // namespace

std::vector<Option> options(Job& job) {
  Table all;
  append(all, model(job.model));
  append(all, data(job.data));
  append(all, transforms(job.transforms));
  append(all, train(job.train));
  append(all, batch(job.batch));
  append(all, optim(job.optim));
  append(all, schedule(job.schedule));
  append(all, amp(job.amp));
  append(all, parallel(job.parallel));
  append(all, checkpoint(job.checkpoint));
  append(all, run(job.run));
  append(all, log(job.log));
  append(all, device(job.device));
  append(all, verify(job.verify));
  append(all, compare(job.compare));
  return all;
}

std::vector<std::pair<std::string, std::string>> short_forms() {
  return {{"replicas", "parallel.replicas"},
          {"reduction", "parallel.reduction"},
          {"dp-sync", "parallel.dp_sync"},
          {"resume", "checkpoint.resume"},
          {"device", "device.name"}};
}

bool Command::reads(const Option& option) const {
  return std::ranges::find(but, option.key) == but.end() &&
         std::ranges::any_of(options,
                             [&](const std::string& o) { return o == option.section() || o == option.key; });
}

std::vector<Command> commands() {
  return {{"train",
           "train a model: the default command",
           {"model", "data", "train", "batch", "optim", "schedule", "amp", "parallel", "checkpoint", "run",
            "log", "device"}},
          {"evaluate",
           "measure a checkpoint on data.eval, every sample exactly once",
           {"model", "data.eval", "data.threads", "data.prefetch", "data.size", "data.resize", "data.mean",
            "data.std", "train.label_smoothing", "amp.mode", "batch.micro", "parallel.replicas",
            "parallel.devices", "parallel.timeout", "checkpoint.resume", "run.dir", "log.color", "device"}},
          {"verify",
           "train a few steps in several layouts and report whether they give the same bits",
           {"model", "data", "train", "batch", "optim", "schedule", "amp", "parallel", "log.color", "device",
            "verify"},
           {"data.eval", "train.epochs", "train.minutes", "train.eval_every", "train.eval_every_steps",
            "parallel.check_every"}},
          {"compare",
           "measure single device, DP, DDP and hybrid side by side: speed, time by phase, memory",
           {"model", "data", "train", "batch", "optim", "schedule", "amp", "parallel", "run.dir", "log.color",
            "device", "compare"},
           {"data.eval", "train.epochs", "train.minutes", "train.eval_every", "train.eval_every_steps",
            "parallel.check_every", "parallel.dp_sync"}}};
}

}  // namespace lockstep::app
