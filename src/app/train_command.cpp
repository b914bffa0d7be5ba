#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/commands.h"
#include "app/options.h"
#include "app/training.h"
#include "checkpoint/load.h"
#include "comm/collective.h"
#include "core/error.h"
#include "core/text.h"
#include "monitor/host_memory.h"
#include "monitor/run_directory.h"
#include "monitor/summary.h"
#include "train/agreement.h"
#include "train/loop.h"
#include "train/model_state.h"
#include "version.h"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

// The run as one rank sees it. Members in the order in which they are made.
class TrainCommand {
 public:
  TrainCommand(comm::World& world, const Invocation& invocation)
      : world_(world), in_(invocation), signals_(job_.run.signals), console_(stdout, color_mode(job_)) {}

  int run() {
    world_.set_timeout(job_.parallel.collective.timeout);
    resume();
    plan_batches();
    data_ = open_data(world_, in_, true);
    placement_ = place(world_, job_);
    team_ = make_training(world_, job_, data_, plan_, placement_);
    require_memory();
    resolve();
    world_.together([&] { start_state(); });
    require_agreement(world_, data_, *team_);
    train::check_agreement(*team_, world_, position_.step);
    in_touch(world_, root() ? [this] { claim_directory(); } : std::function<void()>());
    return go();
  }

 private:
  bool root() const { return world_.rank() == 0; }
  int devices() const { return world_.size() * job_.parallel.replicas; }
  device::Store& store() const { return team_->first().store(); }

  // The system promises more memory than it has, and ends a process that comes for it.
  void require_memory() {
    uint64_t planned = 0;
    for (int i = 0; i < team_->size(); ++i)
      for (const auto& [purpose, bytes] : memory_of((*team_)[i])) planned += bytes;
    uint64_t missing = 0;  // of all ranks here
    const std::vector<uint64_t> all =
        world_.all_gather_values(planned - std::min(planned, monitor::host_bytes()));
    for (int r = 0; r < world_.size(); ++r)
      if (world_.hosts()[r] == world_.host()) missing += all[r];
    world_.together([&] {
      const uint64_t available = monitor::available_host_bytes();
      if (missing > available)
        throw UserError(fmt::format("the run does not fit into the memory of host '{}'", world_.host()),
                        fmt::format("its '{}' ranks need '{}' more, '{}' are available", world_.local_size(),
                                    human_bytes(missing), human_bytes(available)),
                        kUseLess);
    });
  }

  void plan_batches() {
    world_.together([&] {
      if (!resumed_from_.empty()) adopt_batch();
      plan_ = plan_batch(job_, devices());
    });
  }

  // What was worked out for the world that began the run holds for all that go on with it.
  void adopt_batch() {
    train::BatchOptions& b = job_.batch;
    if (b.micro != 0 || b.global != 0 || b.accumulation != 0) return;
    const checkpoint::State s = checkpoint::load_checkpoint(resumed_from_, checkpoint::Verify::sizes).state;
    b.micro = s.micro_batch;
    b.global = s.shards * s.micro_batch;
    for (const char* key : {"batch.micro", "batch.global"}) in_.origin[key] = "checkpoint";
  }

  // What was left to the trainer to choose, so that whoever reads the job later need not guess.
  void resolve() {
    auto set = [&](const std::string& key, auto& field, auto value) {
      if (field == value) return;
      field = value;
      in_.origin[key] = kWorkedOut;
    };
    set("batch.micro", job_.batch.micro, plan_.micro);
    set("batch.global", job_.batch.global, plan_.global);
    set("batch.accumulation", job_.batch.accumulation, plan_.accumulation);
    set("device.name", job_.device.name, std::string("cpu"));
    set("device.threads", job_.device.threads, placement_.threads);
  }

  void resume() {
    const bool automatic = job_.checkpoint.resume == "auto";
    const auto claim = [&] {
      const fs::path dir = newest_run(in_);
      if (dir.empty()) return;
      directory_.emplace(monitor::RunDirectory::claim(dir, true));
      checkpoint::clean_stale(dir / monitor::kCheckpoints);
    };
    in_touch(world_, root() && automatic ? claim : std::function<void()>());
    resumed_from_ = find_checkpoint(world_, in_, console_);
    if (root() && automatic)
      console_.print(resumed_from_.empty() ? "resume auto: no checkpoint found, starting anew"
                                           : "resume auto: going on from '" + resumed_from_ + "'");
  }

  void start_state() {
    if (resumed_from_.empty()) {
      start_parameters(*team_, job_);
      return;
    }
    const checkpoint::Checkpoint c = checkpoint::load_checkpoint(resumed_from_, checkpoint::Verify::sizes);
    require_same_run(c.state);
    team_->run([&](train::Member& m) {
      train::load_tensors(c.model(), c.optimizer(), m.store(), m.optimizer.get());
    });
    position_ = train::load_position(c.state);
    const bool same_eval = std::ranges::all_of(
        std::array{"data.eval", "data.eval.labels"},
        [&](const char* key) { return fact(c.state.data, key) == fact(data_.facts, key); });
    if (!same_eval) position_.eval.reset();
  }

  // What a cursor and a tree of shards mean must not change under a run; what else has changed is said.
  void require_same_run(const checkpoint::State& s) {
    auto same = [&](const std::string& what, const std::string& then, const std::string& now) {
      if (then != now)
        throw UserError(
            fmt::format("checkpoint '{}' belongs to another run: {} differs", resumed_from_, what),
            fmt::format("it was '{}' then and is '{}' now", then, now),
            "resume with the job that wrote it, or start from its weights: --model.weights " + resumed_from_ +
                "/model.safetensors");
    };
    same("train.seed", std::to_string(s.seed), std::to_string(job_.train.seed));
    same("batch.micro", std::to_string(s.micro_batch), std::to_string(plan_.micro));
    same("batch.global", std::to_string(s.shards * s.micro_batch), std::to_string(plan_.global));
    std::map<std::string, std::string> then = values_of_ini(s.job);
    if (then.contains("optim.name")) same("optim.name", then["optim.name"], job_.optim.name);
    for (const auto& [key, value] : s.data)
      if (key.starts_with("data.train")) same(key, value, fact(data_.facts, key));
    if (then.contains("data.drop_last"))
      same("data.drop_last", then["data.drop_last"], job_.data.drop_last ? "true" : "false");

    std::string changes;
    const auto compare = [&](const std::string& what, const std::string& was, const std::string& is) {
      if (was != is) changes += fmt::format("\n  {} was '{}' and is '{}'", what, was, is);
    };
    const bool exact = job_.parallel.collective.reduction == comm::Reduction::exact;
    Job now = job_;
    for (const Option& o : options(now)) {
      const bool matters = o.identity || o.key == "device.threads";
      const bool elsewhere = o.section() == "batch" || o.section() == "checkpoint" ||
                             o.key == "model.weights" || o.key == "parallel.replicas" ||
                             o.key == "parallel.dp_sync" || o.key == "parallel.check_every" ||
                             (o.key == "parallel.bucket_mib" && exact);
      if (matters && !elsewhere && then.contains(o.key)) compare(o.key, then[o.key], o.get());
    }
    for (const char* key : {"data.eval", "data.eval.labels"})
      compare(key, fact(s.data, key), fact(data_.facts, key));
    for (const auto& [name, version] : versions()) compare(name, fact(s.versions, name), version);
    if (!changes.empty())
      warnings_.push_back(
          "since the checkpoint this has changed, so the end may have other bits than that of one "
          "uninterrupted run" +
          changes);
  }

  static std::string fact(const std::map<std::string, std::string>& facts, const std::string& key) {
    return facts.contains(key) ? facts.at(key) : "none";
  }

  void claim_directory() {
    const fs::path dir = job_.run.dir;
    if (!directory_ && dir.empty())
      directory_.emplace(monitor::RunDirectory::next("runs", job_name(in_)));
    else if (!directory_)
      directory_.emplace(monitor::RunDirectory::claim(dir, goes_on_in(dir)));
    if (!directory_->lock_failure().empty())
      warnings_.push_back(fmt::format("run.dir '{}' could not be locked\n  {}\n  start no second run in it",
                                      directory_->path().string(), directory_->lock_failure()));
    require_newest();
    const size_t state = store().values().size_bytes() + team_->first().optimizer->bytes();
    directory_->probe(2 * state + (1 << 20));
    log_ = std::make_unique<monitor::MetricsLog>(directory_->path() / monitor::kMetricsFile, position_.step);
    saver_ = std::make_unique<checkpoint::Saver>(checkpoint::SaverOptions{
        directory_->path() / monitor::kCheckpoints,
        {job_.checkpoint.keep, job_.checkpoint.best == "none" ? "" : job_.checkpoint.best},
        {}});
    directory_->keep();
  }

  // Later checkpoints of a run that is to go on from an earlier one would be taken for its own.
  void require_newest() const {
    if (job_.checkpoint.resume == "auto" || !goes_on_in(directory_->path())) return;
    for (const checkpoint::Entry& entry :
         checkpoint::list_entries(directory_->path() / monitor::kCheckpoints))
      if (entry.suffix.empty() && entry.step > position_.step)
        throw UserError(fmt::format("run.dir '{}' holds a later checkpoint than the one to go on from",
                                    directory_->path().string()),
                        fmt::format("'{}' is of step '{}'", entry.path.filename().string(), entry.step),
                        "choose another '--run.dir', or delete the later ones first");
  }

  // Whether the checkpoint to go on from is one of this run's own.
  bool goes_on_in(const fs::path& dir) const {
    std::error_code ignored;
    return !resumed_from_.empty() &&
           fs::equivalent(fs::path(resumed_from_).parent_path(), dir / monitor::kCheckpoints, ignored);
  }

  monitor::Header header() const {
    monitor::Header h;
    for (const Setting& s : settings(in_))
      if (s.origin != kDefaultOrigin) h.job.push_back({s.key, s.value, s.origin});
    h.world = placement_.rows;
    for (monitor::WorldRow& row : h.world) row.device = descriptions_[row.rank];
    const train::Member& first = team_->first();
    h.model = job_.model.name;
    h.parameters = first.replica->graph().parameter_count();
    h.parameter_bytes = h.parameters * static_cast<int64_t>(sizeof(float));
    h.micro_batch = plan_.micro;
    h.global_batch = plan_.global;
    h.accumulation = plan_.accumulation;
    h.shards = plan_.shards;
    h.samples = data_.train->num_samples();
    h.steps_per_epoch = first.train->order().batches_per_epoch();
    h.steps = train::total_steps(job_.train, h.steps_per_epoch);
    h.minutes = job_.train.minutes;
    h.memory = memory_of(first);
    return h;
  }

  checkpoint::State checkpoint_state() const {
    checkpoint::State s;
    s.seed = job_.train.seed;
    s.shards = plan_.shards;
    s.micro_batch = plan_.micro;
    Job any_world = job_;
    any_world.batch.accumulation = 0;  // follows from the two others and the world
    s.job = to_ini(any_world);
    s.data = data_.facts;
    s.versions = versions();
    s.ranks = world_.size();
    return s;
  }

  int go() {
    descriptions_ = world_.all_gather(team_->first().device->description());
    if (root()) {
      if (std::string note = team_->first().device->precision_note(job_.amp.mode); !note.empty())
        warnings_.push_back(note);
      if (job_.model.sync_batch_norm && devices() < plan_.shards)
        warnings_.emplace_back(
            "synchronised batch norm spans the shards that run at the same time\n  another number of devices "
            "gives another result\n  set batch.accumulation 1 to span the whole batch");
      if (plan_.world_dependent)
        warnings_.emplace_back(
            "batch.global follows the number of devices\n  another number of devices gives another result\n  "
            "set batch.global");
      for (const auto* warnings : {&in_.warnings, &placement_.warnings, &warnings_})
        for (const std::string& w : *warnings) console_.print(monitor::warning(w, console_.color()));
      console_.print(monitor::header(header(), console_.color()));
    }
    train::LoopOptions options{.train = job_.train,
                               .base_lr = job_.optim.lr,
                               .schedule = job_.schedule,
                               .checkpoint = job_.checkpoint,
                               .check_every = job_.parallel.check_every,
                               .log_every = job_.log.every,
                               .state = checkpoint_state()};
    if (world_.any(root() && goes_on_in(directory_->path()))) options.saved_step = position_.step;
    const train::LoopParts parts{world_,     *team_,  saver_.get(), root() ? &console_ : nullptr,
                                 log_.get(), signals_};
    const train::LoopResult result = train::run_loop(parts, options, position_);
    const uint64_t peak = monitor::peak_host_bytes();
    uint64_t peak_all = 0;
    for (uint64_t p : world_.all_gather_values(peak)) peak_all = std::max(peak_all, p);
    world_.together([&] {
      if (!root()) return;
      finish(result, peak_all);
      if (options.saved_step != result.position.step) require_saved(result.position.step);
    });
    return result.stopped ? kStoppedRequeue : kDone;
  }

  void finish(const train::LoopResult& r, uint64_t peak_host_bytes) {
    monitor::Summary s;
    for (const Setting& setting : settings(in_)) s.job.emplace_back(setting.key, setting.value);
    s.git = kRevision;
    s.ranks = world_.size();
    s.replicas = job_.parallel.replicas;
    s.devices = devices();
    s.hosts = world_.hosts();
    std::ranges::sort(s.hosts);
    s.hosts.erase(std::unique(s.hosts.begin(), s.hosts.end()), s.hosts.end());
    s.steps = r.position.step;
    const double batches = static_cast<double>(team_->first().train->order().batches_per_epoch());
    s.epochs =
        static_cast<double>(r.position.cursor.epoch) + static_cast<double>(r.position.cursor.batch) / batches;
    s.samples = r.position.samples;
    s.train_loss = r.position.train_loss;
    s.eval = r.position.eval;
    s.params_hash = train::params_hash(store(), store().values());
    s.samples_per_second = r.time.steps ? static_cast<double>(r.samples) / r.time.total_seconds() : 0;
    s.step_ms_median = r.step_ms_median;
    s.step_ms_p95 = r.step_ms_p95;
    s.time = r.time.fractions();
    s.peak_host_bytes = peak_host_bytes;
    s.peak_device_bytes = peak_host_bytes;
    s.skipped_steps = r.position.skipped;
    s.resumed_from = resumed_from_;
    const fs::path dir = directory_->path();
    // A run that was finished already keeps its summary.
    if (r.time.steps > 0 || r.evaluated || !fs::exists(dir / monitor::kSummaryFile))
      monitor::write_summary(dir / monitor::kSummaryFile, s);
    std::vector<std::pair<std::string, std::string>> written{
        {"summary", (dir / monitor::kSummaryFile).string()},
        {"metrics", (dir / monitor::kMetricsFile).string()}};
    if (const fs::path last = saver_->last_committed(); !last.empty())
      written.emplace_back("checkpoint", last.string());
    console_.print(monitor::final_block(s, written, console_.color()));
    if (r.time.steps == 0 && !r.stopped && !resumed_from_.empty())
      console_.print(fmt::format("no step was left to take: the run ends at step {}", r.position.step));
    if (r.stopped)
      console_.print(fmt::format("stopped on request ({}) at step {}; go on with: --resume auto --run.dir {}",
                                 signals_.name().empty() ? "of another rank" : signals_.name(),
                                 r.position.step, dir.string()));
  }

  void require_saved(int64_t step) const {
    if (saver_->last_committed().filename() == checkpoint::step_name(step)) return;
    throw UserError(
        fmt::format("the run ended at step '{}' without its last checkpoint", step),
        "it could not be written, as the warning above says",
        fmt::format("make room in '{0}', then go on from the last whole one: --resume auto --run.dir '{0}'",
                    directory_->path().string()));
  }

  comm::World& world_;
  Invocation in_;  // resolve() fills in what was left open
  Job& job_ = in_.job;
  const train::StopSignals signals_;
  monitor::Console console_;
  std::vector<std::string> warnings_;
  train::BatchPlan plan_;
  DataSets data_;
  Placement placement_;
  std::unique_ptr<train::ReplicaTeam> team_;
  std::vector<std::string> descriptions_;  // of each rank's devices
  std::string resumed_from_;
  train::Position position_;
  std::optional<monitor::RunDirectory> directory_;
  std::unique_ptr<monitor::MetricsLog> log_;
  std::unique_ptr<checkpoint::Saver> saver_;
};

}  // namespace

int train_command(comm::World& world, const Invocation& invocation) {
  return TrainCommand(world, invocation).run();
}

}  // namespace lockstep::app
