#include <fmt/format.h>

#include "app/batch.h"
#include "app/commands.h"
#include "app/options.h"
#include "app/session.h"
#include "checkpoint/load.h"
#include "core/error.h"
#include "monitor/phase_timer.h"
#include "monitor/run_directory.h"
#include "train/evaluate.h"
#include "train/model_state.h"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

// What is measured: the model.safetensors of a checkpoint, or model.weights.
fs::path weights_file(const std::string& found, const Job& job) {
  if (!found.empty()) return fs::path(found) / checkpoint::kModelFile;
  if (!job.model.weights.empty()) return job.model.weights;
  throw UserError("no checkpoint to evaluate",
                  "--resume 'auto' finds no whole one in run.dir, or in the job's newest run",
                  "give --run.dir, --resume PATH or --model.weights FILE");
}

// The data may lack some of the classes that the model has.
int64_t classes_of(const checkpoint::SafetensorsFile& weights, const std::string& model) {
  const checkpoint::TensorView* classifier = weights.find(models::find(model).classifier + ".weight");
  if (classifier && classifier->shape.rank() > 0) return classifier->shape[0];
  throw UserError(fmt::format("'{}' are no weights of model '{}'", weights.path().string(), model),
                  fmt::format("they hold no '{}.weight'", models::find(model).classifier),
                  "set model.name to the model that was trained");
}

// A checkpoint's averaged weights, where it has any, are what training evaluates too. Returns what it took.
std::string load(const std::string& found, const checkpoint::SafetensorsFile& weights, device::Store& store) {
  train::load_weights(weights, store);
  if (found.empty()) return weights.path().string();
  const bool averaged =
      train::load_average(checkpoint::SafetensorsFile(fs::path(found) / checkpoint::kOptimizerFile), store);
  return found + (averaged ? " (averaged weights)" : "");
}

}  // namespace

// What training saw the images through, and its model: as the checkpoint's job has it, unless given.
void adopt(const checkpoint::State& trained, Invocation& in) {
  const std::map<std::string, std::string> then = values_of_ini(trained.job);
  for (Option& o : options(in.job)) {
    const bool adopted = o.key == "model.name" || o.key == "amp.mode" || o.key == "train.label_smoothing" ||
                         o.key == "data.size" || o.key == "data.resize" || o.key == "data.mean" ||
                         o.key == "data.std";
    if (!adopted || !then.contains(o.key) || then.at(o.key) == o.get()) continue;
    std::string& origin = in.origin[o.key];
    if (origin == kDefaultOrigin) {
      o.set(then.at(o.key));
      origin = "checkpoint";
    } else {
      in.warnings.push_back(
          fmt::format("{} was '{}' in training and is '{}' ({})", o.key, then.at(o.key), o.get(), origin));
    }
  }
}

// Where the training data and these both name their classes.
void require_class_names(const checkpoint::State& trained, const data::ClassificationSet& eval) {
  const auto then = trained.data.find("data.train.class_names");
  const std::string now = class_names_hash(eval);
  if (then == trained.data.end() || then->second == "none" || now == "none" || then->second == now) return;
  throw UserError(
      "the training data and data.eval name different classes",
      fmt::format("their hash was '{}' in training and is '{}' in '{}'", then->second, now, eval.path()),
      "give a file that was packed with the same class names, in the same order");
}

int evaluate_command(comm::World& world, const Invocation& given) {
  Invocation invocation = given;
  const Job& job = invocation.job;
  world.set_timeout(job.parallel.collective.timeout);
  monitor::Console console(stdout, color_mode(job));
  const std::string found = find_checkpoint(world, invocation, console);
  checkpoint::State trained;
  world.together([&] {
    if (found.empty()) return;
    trained = checkpoint::load_checkpoint(found, checkpoint::Verify::sizes).state;
    adopt(trained, invocation);
  });
  if (world.rank() == 0)
    for (const std::string& w : invocation.warnings) console.print(monitor::warning(w, console.color()));
  const DataSets data = open_data(world, invocation, false);
  const std::unique_ptr<train::ReplicaTeam> team = make_team(world, job, place(world, job));
  if (const std::string note = team->first().device->precision_note(job.amp.mode);
      world.rank() == 0 && !note.empty())
    console.print(monitor::warning(note, console.color()));
  std::string measured;
  world.together([&] {
    const int64_t micro = job.batch.micro > 0 ? job.batch.micro : kDefaultMicroBatch;
    const checkpoint::SafetensorsFile weights(weights_file(found, job));
    const int64_t classes = classes_of(weights, job.model.name);
    require_classes(*data.eval, classes, "the model");
    require_class_names(trained, *data.eval);
    const models::ModelOptions model = model_for(job, *data.eval, classes, false);
    team->run([&](train::Member& m) {
      make_replica(m, job, model, std::min(micro, data.eval->num_samples()));
      const std::string what = load(found, weights, m.store());
      if (&m == &team->first()) measured = what;
      make_evaluation(m, world.size() * team->size(), job, *data.eval, micro);
    });
  });
  require_agreement(world, data, *team);
  const double begin = monitor::steady_seconds();
  const train::Evaluation e = *train::evaluate(*team, world);
  if (world.rank() != 0) return kDone;
  const auto share = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(e.count); };
  console.print(monitor::table("evaluation", {},
                               {{"weights", measured},
                                {"data", job.data.eval},
                                {"samples", fmt::format("{}", e.count)},
                                {"top-1", fmt::format("{:.4f} ({} right)", share(e.top1), e.top1)},
                                {"top-5", fmt::format("{:.4f} ({} right)", share(e.top5), e.top5)},
                                {"loss", fmt::format("{:.6f}", e.loss)},
                                {"seconds", fmt::format("{:.2f}", monitor::steady_seconds() - begin)}},
                               console.color()));
  return kDone;
}

}  // namespace lockstep::app
