#include <fmt/format.h>

#include <algorithm>

#include "app/commands.h"
#include "app/layouts.h"
#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "train/trace.h"
#include "train/ulp.h"

namespace lockstep::app {

namespace {

constexpr int64_t kSteps = 20;        // where none are given
constexpr size_t kShownTensors = 10;  // of each layout that differs

// What a layout came to; rank 0 knows.
struct Outcome {
  Layout layout;
  train::Trace trace;
  double seconds = 0;
  std::vector<train::Difference> differences = {};  // from the reference
};

class VerifyCommand {
 public:
  VerifyCommand(comm::World& world, const Invocation& invocation)
      : world_(world), in_(invocation), console_(stdout, color_mode(job_)) {}

  int run() {
    world_.set_timeout(job_.parallel.collective.timeout);
    limit_to_steps(in_, kSteps);
    world_.together([&] { plan_ = fix_batch(job_, world_.size() * job_.parallel.replicas); });
    choose_layouts();
    equal_threads(world_, job_, layouts_);
    print_warnings();
    const DataSets data = open_data(world_, in_, true);
    for (const Layout& layout : layouts_) run(layout, data);
    if (root()) report();
    const std::string failure = world_.broadcast(root() ? this->failure() : "");
    if (failure.empty()) return kDone;
    if (root()) fmt::print(stderr, "error: {}\n", failure);
    return kClusterFailed;
  }

 private:
  bool root() const { return world_.rank() == 0; }

  // The reference comes first.
  void choose_layouts() {
    const int ranks = world_.size(), given = job_.parallel.replicas;
    const size_t cores = world_.all_gather_values(device::cores_in_affinity_mask().size()).front();
    const auto shared_out = [&](int devices) { return plan_.shards % devices == 0; };
    const int replicas = given > 1 ? given : most_replicas(plan_.shards, cores);
    const std::string& sync = job_.parallel.dp_sync;
    layouts_ = {{"1 device", 1, 1}};
    if (ranks > 1) layouts_.push_back({"DDP", ranks, 1, sync});
    if (replicas > 1) layouts_.push_back({"DP", 1, replicas, sync});
    for (const int p : {replicas, 2})
      if (ranks > 1 && p > 1 && shared_out(ranks * p)) {
        layouts_.push_back({"hybrid", ranks, p, sync});
        break;
      }
    world_.together([&] {
      if (layouts_.size() == 1)
        throw UserError(
            "there is nothing to verify: a single shard has a single layout",
            fmt::format("batch.global '{}' is one shard of batch.micro '{}'", plan_.global, plan_.micro),
            fmt::format("give at least '2' shards: --batch.global '{}'", 2 * plan_.micro));
    });
  }

  void print_warnings() {
    if (!root()) return;
    for (const std::string& w : in_.warnings) console_.print(monitor::warning(w, console_.color()));
  }

  void run(const Layout& layout, const DataSets& data) {
    if (root())
      console_.print(fmt::format("{} ({}): {} steps of {} samples in {} shards, threads a device: {}",
                                 layout.name, layout.text(), job_.train.steps, plan_.global, plan_.shards,
                                 layout.threads));
    Outcome outcome{layout};
    run_layout(world_, layout, [&](comm::World& w) {
      const double begin = monitor::steady_seconds();
      LayoutRun run(w, job_, data, layout);
      const bool traced = w.rank() == 0;
      if (const std::string note = run.team().first().device->precision_note(job_.amp.mode);
          traced && outcomes_.empty() && !note.empty())
        console_.print(monitor::warning(note, console_.color()));
      device::Store& store = run.team().first().store();
      if (traced) record(outcome.trace, store);
      for (int64_t step = 0; step < job_.train.steps; ++step) {
        run.step();
        if (traced) record(outcome.trace, store);
      }
      run.check_agreement();
      if (traced) finish(outcome.trace, store);
      outcome.seconds = monitor::steady_seconds() - begin;
    });
    if (!root()) return;
    if (!outcomes_.empty()) outcome.differences = differences(outcomes_.front().trace, outcome.trace);
    outcomes_.push_back(std::move(outcome));
    if (outcomes_.size() > 1)
      outcomes_.back().trace.tensors.clear();  // only the reference's are needed again
  }

  // The bound is on values at the end; without one, no step may differ.
  bool agrees(const Outcome& o) const {
    return o.differences.empty() || (job_.verify.max_ulp > 0 &&
                                     o.differences.front().ulp <= static_cast<uint64_t>(job_.verify.max_ulp));
  }

  monitor::Row row(const Outcome& o) const {
    const std::string devices = fmt::format("{} ({})", o.layout.devices(), o.layout.text());
    const std::string seconds = fmt::format("{:.1f}", o.seconds);
    if (&o == &outcomes_.front())
      return {o.layout.name, devices, o.trace.params_hash, "reference", "", "", seconds};
    if (o.differences.empty()) return {o.layout.name, devices, o.trace.params_hash, "0", "", "none", seconds};
    const train::Difference& most = o.differences.front();
    return {o.layout.name,
            devices,
            o.trace.params_hash,
            train::text_of_ulp(most.ulp),
            most.name,
            fmt::format("{}", train::earliest(o.differences)->first_step),
            seconds};
  }

  void report() {
    std::vector<monitor::Row> rows;
    for (const Outcome& o : outcomes_) rows.push_back(row(o));
    console_.print("");
    console_.print(monitor::table(
        fmt::format("{} steps, reduction {}", job_.train.steps,
                    job_.parallel.collective.reduction == comm::Reduction::exact ? "exact" : "fast"),
        {"layout", "devices", "params_hash", "largest ULP", "of", "first step that differed", "seconds"},
        rows, console_.color()));
    for (const Outcome& o : outcomes_)
      if (!o.differences.empty()) print_differences(o);
    if (std::ranges::all_of(outcomes_, [&](const Outcome& o) { return agrees(o); }))
      console_.print(fmt::format("all layouts agree with 1 device within {} ULP", job_.verify.max_ulp));
  }

  void print_differences(const Outcome& o) {
    std::vector<monitor::Row> rows;
    for (const train::Difference& d : o.differences) {
      if (rows.size() == kShownTensors) break;
      rows.push_back({d.name, train::text_of_ulp(d.ulp), fmt::format("{}", d.reference),
                      fmt::format("{}", d.other), fmt::format("{}", d.first_step)});
    }
    console_.print("");
    console_.print(
        monitor::table(fmt::format("{} ({}): {} of {} tensors differ", o.layout.name, o.layout.text(),
                                   o.differences.size(), outcomes_.front().trace.tensors.size()),
                       {"tensor", "largest ULP", "1 device", o.layout.name, "first step that differed"}, rows,
                       console_.color()));
  }

  // What to say of the first layout that does not agree; "" when all do.
  std::string failure() const {
    const auto bad = std::ranges::find_if(outcomes_, [&](const Outcome& o) { return !agrees(o); });
    if (bad == outcomes_.end()) return "";
    const train::Difference &most = bad->differences.front(), &first = *train::earliest(bad->differences);
    const bool exact = job_.parallel.collective.reduction == comm::Reduction::exact;
    const std::string todo =
        exact ? "exact reduction promises equal bits: a processor, memory, disk, link or library of that "
                "layout "
                "differs; leave out hosts one by one to find it"
              : fmt::format(
                    "fast reduction may sum in another order in each layout: use --reduction exact, or "
                    "state what you accept: --verify.max_ulp {}",
                    most.ulp == train::kInfinitelyFar ? "N" : std::to_string(most.ulp));
    return ClusterError(
               fmt::format("layout '{}' ({}) does not agree with 1 device within '{}' ULP", bad->layout.name,
                           bad->layout.text(), job_.verify.max_ulp),
               fmt::format(
                   "'{}' is '{}' ULP away after step '{}'; '{}' was the first to differ, after step '{}'",
                   most.name, train::text_of_ulp(most.ulp), job_.train.steps, first.name, first.first_step),
               todo)
        .what();
  }

  comm::World& world_;
  Invocation in_;
  Job& job_ = in_.job;
  monitor::Console console_;
  train::BatchPlan plan_;
  std::vector<Layout> layouts_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

int verify_command(comm::World& world, const Invocation& invocation) {
  return VerifyCommand(world, invocation).run();
}

}  // namespace lockstep::app
