#include "app/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>

#include "app/options.h"
#include "checkpoint/load.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/progress.h"
#include "device/cpu/cpu_device.h"
#include "monitor/run_directory.h"
#include "train/evaluate.h"
#include "train/model_state.h"
#include "version.h"  // made by CMake

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

// Cores, ascending, as a list: "0-3,8".
std::string text_of(const std::vector<int>& cores) {
  std::string s;
  for (size_t i = 0; i < cores.size(); ++i) {
    const int first = cores[i];
    while (i + 1 < cores.size() && cores[i + 1] == cores[i] + 1) ++i;
    s += (s.empty() ? "" : ",") + std::to_string(first) +
         (cores[i] > first ? "-" + std::to_string(cores[i]) : "");
  }
  return s;
}

void refuse_mismatch(const data::ClassificationSet& train, const data::ClassificationSet& eval) {
  if (train.image() != eval.image()) {
    auto text = [](const data::ImageShape& i) {
      return fmt::format("[{}, {}, {}]", i.height, i.width, i.channels);
    };
    throw UserError(fmt::format("'{}' and '{}' hold images of different shapes", train.path(), eval.path()),
                    fmt::format("images [H, W, C] are '{}' in data.train and '{}' in data.eval",
                                text(train.image()), text(eval.image())),
                    "give files that were packed alike");
  }
  require_classes(eval, train.num_classes(), "data.train");
  const std::vector<std::string>&mine = train.class_names(), &other = eval.class_names();
  if (mine.empty() || other.empty() || mine == other) return;
  const auto at = std::ranges::mismatch(mine, other).in1 - mine.begin();
  throw UserError("data.train and data.eval name different classes",
                  fmt::format("class '{}' is '{}' in '{}' and '{}' in '{}'", at, mine[at], train.path(),
                              other[at], eval.path()),
                  "give files that were packed with the same class names, in the same order");
}

// The hash of this rank's file. One that stores none is read, by one rank a host, while the others stay in
// touch.
std::string content_hash(comm::World& world, const std::string& key,
                         const std::optional<data::ClassificationSet>& set) {
  const bool unknown = set && !set->has_stored_hash();
  const std::vector<std::string> files = world.all_gather(unknown ? world.host() + ":" + set->path() : "");
  const auto reader = std::ranges::find(files, files[world.rank()]) - files.begin();
  std::string mine = set && !unknown ? set->content_hash() : "";
  std::function<void()> read;
  if (unknown && reader == world.rank())
    read = [&] {
      Progress progress("hashing " + key, static_cast<uint64_t>(set->num_samples()), "samples");
      mine = set->content_hash([&](uint64_t rows) {
        if (world.rank() == 0) progress.advance(rows);
      });
    };
  in_touch(world, read);
  const std::vector<std::string> all = world.all_gather(mine);
  return unknown ? all[reader] : mine;
}

std::string labels_hash(const data::ClassificationSet& set) {
  return "xxh3 " + hex64(xxh3(std::as_bytes(set.labels())));
}

void agree(comm::World& world, const std::string& what, const std::string& value, const std::string& todo) {
  const std::vector<int> differing = world.agree(what, value);
  if (differing.empty()) return;
  const std::vector<std::string> all = world.all_gather(value);
  const int other = differing.front();
  int usual = 0;
  while (std::ranges::find(differing, usual) != differing.end()) ++usual;
  const UserError error("ranks disagree on " + what,
                        fmt::format("{}: '{}'; {}: '{}'", world.name_of(usual), all[usual],
                                    comm::text_of_ranks(differing), all[other]),
                        todo);
  world.all_agree_ok(&error);
}

}  // namespace

void in_touch(comm::World& world, const std::function<void()>& work) {
  std::future<void> done;
  if (work) done = std::async(std::launch::async, work);
  world.until_all(
      [&] { return !work || done.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  world.together([&] {
    if (work) done.get();
  });
}

std::string class_names_hash(const data::ClassificationSet& set) {
  if (set.class_names().empty()) return "none";
  const std::string all = fmt::format("{}", fmt::join(set.class_names(), "\n"));
  return "xxh3 " + hex64(xxh3(std::as_bytes(std::span(all))));
}

void require_same_job(comm::World& world, const Invocation& invocation) {
  if (world.size() == 1) return;
  std::string build;
  for (const auto& [name, version] : versions()) build += name + " " + version + "; ";
  agree(world, "the build", build, "start the same trainer on every host");
  agree(world, "the command",
        invocation.help ? "help" : invocation.command + (invocation.built_in ? ", the built-in job" : ""),
        "start every rank with the same command");
  if (world.agree("the job", job_hash(invocation.job)).empty()) return;
  Job job = invocation.job;
  for (const Option& o : options(job))
    if (o.identity)
      agree(world, o.key, o.get(), "start every rank with the same options, job file and environment");
}

std::string job_name(const Invocation& invocation) {
  if (!invocation.job_file.empty()) return fs::path(invocation.job_file).stem().string();
  return invocation.built_in ? "quickstart" : invocation.job.model.name;
}

fs::path newest_run(const Invocation& invocation) {
  if (!invocation.job.run.dir.empty()) return invocation.job.run.dir;
  return monitor::newest_run("runs", job_name(invocation)).value_or("");
}

std::string find_checkpoint(comm::World& world, const Invocation& invocation, monitor::Console& console) {
  const std::string& resume = invocation.job.checkpoint.resume;
  std::string found;
  const auto find = [&] {
    const fs::path run = resume == "auto" ? newest_run(invocation) : fs::path(resume);
    const fs::path checkpoints = run / monitor::kCheckpoints;
    if (run.empty()) return;
    std::error_code error;
    if (resume != "auto" && !fs::exists(checkpoints, error)) {
      found = checkpoint::load_checkpoint(run).path;
      return;
    }
    checkpoint::Latest latest = checkpoint::find_latest(checkpoints);
    for (const checkpoint::Damaged& d : latest.damaged)
      console.print(monitor::warning(
          fmt::format("checkpoint '{}' is damaged and passed over\n  {}", d.path.string(), d.why),
          console.color()));
    // Nothing at all is a fresh start for `auto`; only damaged ones are not.
    if (latest.checkpoint || resume != "auto" || !latest.damaged.empty())
      found = checkpoint::require(std::move(latest), checkpoints).path;
  };
  in_touch(world, world.rank() == 0 && resume != "never" ? std::function<void()>(find) : nullptr);
  return world.broadcast(found);
}

monitor::ColorMode color_mode(const Job& job) {
  return job.log.color == "always"  ? monitor::ColorMode::always
         : job.log.color == "never" ? monitor::ColorMode::never
                                    : monitor::ColorMode::automatic;
}

namespace {

// Part `i` of `n` even ones.
std::vector<int> part(const std::vector<int>& cores, size_t i, size_t n) {
  return {cores.begin() + static_cast<long>(cores.size() * i / n),
          cores.begin() + static_cast<long>(cores.size() * (i + 1) / n)};
}

// The cores of each replica, disjoint; empty where there are too few.
std::vector<std::vector<int>> cores_of_replicas(const comm::World& world, const std::vector<int>& cores,
                                                const Job& job) {
  const train::ParallelOptions& p = job.parallel;
  std::vector<std::vector<int>> shares;
  const size_t replicas = p.replicas;
  if (p.devices.empty()) {
    if (replicas > 1 && cores.size() >= replicas)
      for (size_t i = 0; i < replicas; ++i) shares.push_back(part(cores, i, replicas));
    return shares;
  }
  const size_t threads = std::max(1, job.device.threads), devices = cores.size() / threads;
  for (int d : p.devices) {
    if (static_cast<size_t>(d) >= devices)
      throw UserError(
          fmt::format("parallel.devices names device '{}', which {} does not have", d,
                      world.name_of(world.rank())),
          fmt::format("its '{}' cores ({}) make '{}' devices of device.threads '{}' each, numbered from 0",
                      cores.size(), text_of(cores), devices, threads),
          "name devices that exist, lower device.threads, or give the rank more cores");
    const auto first = cores.begin() + static_cast<long>(d * threads);
    shares.emplace_back(first, first + static_cast<long>(threads));
  }
  return shares;
}

}  // namespace

Placement place(comm::World& world, const Job& job) {
  const std::vector<int> mask = device::cores_in_affinity_mask();
  const std::string mine = text_of(mask);
  const std::vector<std::string> masks = world.all_gather(mine);
  size_t sharing = 0, before = 0;
  for (int r = 0; r < world.size(); ++r) {
    const bool same = world.hosts()[r] == world.host() && masks[r] == mine;
    sharing += same;
    before += same && r < world.rank();
  }
  const bool enough = mask.size() >= sharing;
  const std::vector<int> cores = enough ? part(mask, before, sharing) : mask;

  Placement placement;
  const int replicas = job.parallel.replicas, wanted = job.device.threads;
  world.together([&] { placement.cores = cores_of_replicas(world, cores, job); });
  const size_t devices = sharing * static_cast<size_t>(replicas);
  placement.threads = wanted > 0 ? wanted
                      : !job.parallel.devices.empty()
                          ? 1
                          : std::max<int>(1, static_cast<int>(mask.size() / devices));
  std::string lists;
  for (int i = 0; i < replicas; ++i)
    lists += text_of(placement.cores.empty() ? mask : placement.cores[i]) + "\n";
  const std::vector<int> threads = world.all_gather_values(placement.threads);
  const std::vector<std::string> all = world.all_gather(lists);
  for (int r = 0; r < world.size(); ++r) {
    std::istringstream lines(all[r]);
    for (int i = 0; i < replicas; ++i) {
      monitor::WorldRow row{.rank = r, .host = world.hosts()[r], .threads = threads[r], .replica = i};
      std::getline(lines, row.cores);
      placement.rows.push_back(row);
    }
  }

  const int on_host = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (mask.size() == 1 && wanted == 0 && on_host > world.local_size())
    placement.warnings.push_back(
        fmt::format("rank '{}' on '{}' is bound to one core ('{}') and '{}' of '{}' are free\n  mpirun binds "
                    "each rank to a "
                    "core by default\n  use mpirun --bind-to none, or --map-by slot:PE={}",
                    world.rank(), world.host(), mine, on_host - world.local_size(), on_host,
                    on_host / world.local_size()));
  if (replicas > 1 && mask.size() < devices)
    placement.warnings.push_back(
        fmt::format("'{}' replicas share '{}' cores on '{}'\n  they take turns, which is slower than fewer "
                    "replicas\n  lower parallel.replicas, or give the rank more cores",
                    devices, mask.size(), world.host()));
  if (std::ranges::adjacent_find(threads, std::not_equal_to<>()) != threads.end())
    placement.warnings.push_back(
        "ranks have different numbers of threads\n  results keep their bits only with equal threads a "
        "device\n  set "
        "device.threads");
  return placement;
}

std::unique_ptr<train::ReplicaTeam> make_team(comm::World& world, const Job& job,
                                              const Placement& placement) {
  auto team = std::make_unique<train::ReplicaTeam>(world.rank(), job.parallel.replicas);
  world.together([&] {
    team->run([&](train::Member& m) {
      const size_t i = &m - &team->first();
      m.device = device::make_cpu_device(placement.threads,
                                         placement.cores.empty() ? std::vector<int>() : placement.cores[i]);
    });
  });
  return team;
}

DataSets open_data(comm::World& world, Invocation& invocation, bool train) {
  DataSets sets;
  const train::DataOptions& data = invocation.job.data;
  data::TransformOptions& transforms = invocation.job.transforms;
  world.together([&] {
    if (train) sets.train.emplace(data.train);
    if (!data.eval.empty()) sets.eval.emplace(data.eval);
    if (sets.train && sets.eval) refuse_mismatch(*sets.train, *sets.eval);
  });
  if (sets.train && transforms.mean.empty()) {
    transforms.mean = sets.train->mean();
    transforms.std = sets.train->std();
    for (const char* key : {"data.mean", "data.std"}) invocation.origin[key] = kWorkedOut;
  }
  const std::string train_hash = content_hash(world, "data.train", sets.train);
  const std::string eval_hash = content_hash(world, "data.eval", sets.eval);
  if (sets.train) {
    const data::ClassificationSet& set = *sets.train;
    sets.facts["data.train"] = "xxh3 " + train_hash;
    sets.facts["data.train.labels"] = labels_hash(set);
    sets.facts["data.train.class_names"] = class_names_hash(set);
    sets.facts["data.train.order"] = set.chunk_rows() > 0 ? fmt::format("by chunks of {} rows, {} at a time",
                                                                        set.chunk_rows(), set.window_chunks())
                                                          : "by row";
    sets.facts["data.train.mean"] = fmt::format("{}", fmt::join(transforms.mean, ","));
    sets.facts["data.train.std"] = fmt::format("{}", fmt::join(transforms.std, ","));
  }
  if (sets.eval) {
    sets.facts["data.eval"] = "xxh3 " + eval_hash;
    sets.facts["data.eval.labels"] = labels_hash(*sets.eval);
  }
  return sets;
}

void require_classes(const data::ClassificationSet& eval, int64_t classes, const std::string& owner) {
  const auto most = *std::ranges::max_element(eval.labels());
  if (eval.num_classes() == classes || (eval.class_names().empty() && most < classes)) return;
  throw UserError(owner + " and data.eval disagree on the number of classes",
                  fmt::format("{} has '{}', '{}' has '{}'", owner, classes, eval.path(), eval.num_classes()),
                  "give data of the same classes; 'datatool info FILE' lists them");
}

models::ModelOptions model_for(const Job& job, const data::ClassificationSet& set, int64_t classes,
                               bool train) {
  const Shape sample = data::output_shape(job.transforms, set.image(), train);
  models::ModelOptions options;
  options.name = job.model.name;
  options.classes = classes;
  options.channels = sample[0];
  options.height = sample[1];
  options.width = sample[2];
  options.dropout = job.model.dropout;
  options.sync_batch_norm = job.model.sync_batch_norm;
  return models::resolve(options);
}

void make_replica(train::Member& member, const Job& job, const models::ModelOptions& model,
                  int64_t micro_batch) {
  nn::SoftmaxCrossEntropy loss;
  loss.label_smoothing = job.train.label_smoothing;
  auto build = [model, loss](int64_t samples) { return models::build(model, samples, loss); };
  member.replica = std::make_unique<train::Replica>(*member.device, build, micro_batch, job.amp.mode);
}

void make_evaluation(train::Member& member, int devices, const Job& job, const data::ClassificationSet& set,
                     int64_t micro_batch) {
  const int64_t micro = std::min(micro_batch, set.num_samples());
  const data::LoaderOptions share =
      train::evaluation_share(micro, member.device_index, devices, job.data.threads, job.data.prefetch);
  const data::Order order = data::make_order(set, micro * devices, job.train.seed, false);
  member.eval = std::make_unique<data::Loader>(set, order, job.transforms, share);
  member.replica->program(device::Mode::evaluate, micro);
  if (const int64_t tail = set.num_samples() % micro) member.replica->program(device::Mode::evaluate, tail);
}

void require_agreement(comm::World& world, const DataSets& data, train::ReplicaTeam& team) {
  if (world.size() == 1) return;
  for (const char* key : {"data.train", "data.train.labels", "data.train.class_names", "data.train.order",
                          "data.train.mean", "data.train.std", "data.eval", "data.eval.labels"})
    agree(world, key, data.facts.contains(key) ? data.facts.at(key) : "none",
          "give every rank the same file");

  // All parameters at once; one by one only to say which.
  agree(world, "the shape of a micro-batch", team.first().replica->graph().shape(0).text(),
        "give every rank the same data and transforms");
  device::Store& store = team.first().store();
  auto describe = [&](const device::ParameterSlot& p) {
    std::vector<float> logical(p.shape.count());
    store.unpack(p, store.values(), logical);
    return fmt::format("{} {} layout {} hash {}", p.name, p.shape.text(), p.layout,
                       hex64(xxh3(std::as_bytes(std::span<const float>(logical)))));
  };
  std::string all;
  for (const device::ParameterSlot& p : store.parameters()) all += describe(p) + "\n";
  if (world.agree("all parameters", xxh3(std::as_bytes(std::span(all)))).empty()) return;
  const auto counts = world.all_gather_values(static_cast<int64_t>(store.parameters().size()));
  agree(world, "the number of parameters", std::to_string(store.parameters().size()),
        "start the same job on every rank");
  for (int64_t i = 0; i < std::ranges::min(counts); ++i)
    agree(world, "parameter '" + store.parameters()[i].name + "'", describe(store.parameters()[i]),
          "different layouts come from different processors or libraries: use hosts of one kind; different "
          "hashes from "
          "different starting weights");
}

std::map<std::string, std::string> versions() {
  return {{"lockstep", kVersion}, {"git", kRevision}, {"onednn", device::library_version()}};
}

}  // namespace lockstep::app
