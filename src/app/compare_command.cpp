#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "app/commands.h"
#include "app/layouts.h"
#include "core/error.h"
#include "core/text.h"
#include "device/cpu/cpu_device.h"
#include "monitor/host_memory.h"
#include "monitor/summary.h"
#include "version.h"  // made by CMake

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSteps = 30;  // measured of each row, where none are given
constexpr int64_t kRounds = 3;  // in which the rows take turns, so that noise meets all alike
constexpr int64_t kWarmUp = 2;  // steps before the measured ones of each round

// As amp.mode calls it.
const char* amp_name(nn::Precision p) { return p == nn::Precision::fp32 ? "off" : nn::name_of(p); }

// Of one device, in bytes. Activations, copies of weights and the loader grow with the micro-batch.
struct DeviceMemory {
  uint64_t total = 0, activations = 0, copies = 0, loader = 0;
};

DeviceMemory memory_in_all(const train::Member& m) {
  DeviceMemory memory{0, m.replica->memory().arena, m.store().copy_bytes(), m.train->memory().size()};
  for (const auto& [purpose, bytes] : memory_of(m)) memory.total += bytes;
  return memory;
}

// One line of the table, and what was measured for it; rank 0 knows.
struct Row {
  Layout layout;
  nn::Precision amp;
  std::vector<double> rates;                 // samples/s of every measured step
  std::vector<double> round_rates;           // their median in each round
  monitor::PhaseTotals time;                 // of device 0
  double wall_seconds = 0, cpu_seconds = 0;  // CPU: of all ranks
  DeviceMemory first, last;                  // planned for the first and the last device
  uint64_t peak_host_bytes = 0;              // of the process that took most
  int64_t largest_micro = 0;                 // 0: not even one sample fits
};

double median(std::vector<double> x) {
  std::ranges::sort(x);
  const size_t half = x.size() / 2;
  return x.size() % 2 ? x[half] : (x[half - 1] + x[half]) / 2;
}

// Of this process, all its threads.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// That the ranks of the launch may run on.
size_t cores_of(comm::World& world) {
  const std::vector<int> mine = device::cores_in_affinity_mask();
  const auto all = world.all_gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(int)});
  std::set<std::pair<std::string, int>> cores;
  for (int r = 0; r < world.size(); ++r)
    for (size_t at = 0; at + sizeof(int) <= all[r].size(); at += sizeof(int))
      cores.emplace(world.hosts()[r], *reinterpret_cast<const int*>(all[r].data() + at));
  return cores.size();
}

// What a program for micro-batches of so many samples needs; nothing is run.
struct PlannedMicro {
  int64_t micro = 0;
  uint64_t activations = 0, copies = 0;
};

// Compiles programs of 1, 2, 4, ... samples until one does not fit, or the data has no more.
std::vector<PlannedMicro> plan_micros(const Job& job, const data::ClassificationSet& set, int threads,
                                      uint64_t limit) {
  const models::ModelOptions model = model_for(job, set, set.num_classes(), true);
  std::vector<PlannedMicro> planned;
  for (int64_t micro = 1; micro <= set.num_samples(); micro *= 2) {
    train::Member m;
    m.device = device::make_cpu_device(threads);
    try {
      make_replica(m, job, model, micro);
      m.replica->program(device::Mode::train, micro);
    } catch (const std::bad_alloc&) {
      break;
    }
    planned.push_back({micro, m.replica->memory().arena, m.store().copy_bytes()});
    if (planned.back().activations + planned.back().copies > limit) break;
  }
  return planned;
}

int64_t largest_micro(const DeviceMemory& device, int64_t micro, const std::vector<PlannedMicro>& planned,
                      uint64_t limit) {
  const uint64_t fixed = device.total - device.activations - device.copies - device.loader;
  int64_t largest = 0;
  for (const PlannedMicro& p : planned) {
    const double loader =
        static_cast<double>(device.loader) * static_cast<double>(p.micro) / static_cast<double>(micro);
    if (fixed + p.activations + p.copies + static_cast<uint64_t>(loader) <= limit) largest = p.micro;
  }
  return largest;
}

class CompareCommand {
 public:
  CompareCommand(comm::World& world, const Invocation& invocation)
      : world_(world), in_(invocation), console_(stdout, color_mode(job_)) {}

  int run() {
    world_.set_timeout(job_.parallel.collective.timeout);
    limit_to_steps(in_, kSteps);
    cores_ = cores_of(world_);
    world_.together([&] { fix_devices(); });
    choose_layouts();
    const DataSets data = open_data(world_, in_, true);
    print_warnings();
    memory_limit_ = memory_limit();
    const auto half = job_.amp.mode == nn::Precision::fp32 ? nn::Precision::bf16 : job_.amp.mode;
    for (const nn::Precision amp : {nn::Precision::fp32, half})
      for (const Layout& layout : layouts_) rows_.push_back({layout, amp});
    for (round_ = 0; round_ < kRounds; ++round_)
      for (Row& row : rows_) measure(row, data);
    plan_memory(data);
    world_.together([&] {
      if (!root()) return;
      console_.print("");
      console_.print(table());
      write();
    });
    return kDone;
  }

 private:
  bool root() const { return world_.rank() == 0; }
  int64_t steps_a_round() const { return (job_.train.steps + kRounds - 1) / kRounds; }
  Job job_of(const Row& row) const {
    Job job = job_;
    job.amp.mode = row.amp;
    return job;
  }

  // The launch's; of one rank with one replica, as many as it has cores, where the shards go round.
  void fix_devices() {
    devices_ = world_.size() * job_.parallel.replicas;
    if (devices_ == 1)
      devices_ = most_replicas(plan_batch(job_, 1).shards, device::cores_in_affinity_mask().size());
    if (devices_ == 1)
      throw UserError("there is nothing to compare: a single shard has a single layout",
                      "batch.global is one batch.micro",
                      "give batch.global at least two shards of batch.micro");
    plan_ = fix_batch(job_, devices_);
  }

  void choose_layouts() {
    const int ranks = world_.size(), replicas = job_.parallel.replicas;
    layouts_ = {{"single", 1, 1}, {"DP root", 1, devices_, "root"}, {"DP allreduce", 1, devices_}};
    if (ranks > 1) layouts_.push_back({"DDP", ranks, 1});
    if (ranks > 1 && replicas > 1) layouts_.push_back({"hybrid", ranks, replicas});
    equal_threads(world_, job_, layouts_);
    // What a single device can do with the cores of all.
    const int all_threads = devices_ * layouts_.front().threads;
    const auto cores = world_.all_gather_values(device::cores_in_affinity_mask().size()).front();
    if (job_.parallel.devices.empty() && static_cast<size_t>(all_threads) <= cores)
      layouts_.insert(layouts_.begin() + 1, {"single, all cores", 1, 1, "allreduce", all_threads});
  }

  void print_warnings() {
    if (!root()) return;
    for (const std::string& w : in_.warnings) console_.print(monitor::warning(w, console_.color()));
  }

  uint64_t memory_limit() {
    const uint64_t given = static_cast<uint64_t>(job_.compare.memory_limit_mib) << 20;
    const uint64_t mine = given ? given : monitor::available_host_bytes() / static_cast<uint64_t>(devices_);
    return world_.all_gather_values(mine).front();
  }

  void measure(Row& row, const DataSets& data) {
    if (root())
      console_.print(fmt::format("round {}/{}: {} ({}), amp {}", round_ + 1, kRounds, row.layout.name,
                                 row.layout.text(), amp_name(row.amp)));
    run_layout(world_, row.layout, [&](comm::World& w) { measure(w, row, data); });
  }

  // One round of one row, on each of the layout's ranks.
  void measure(comm::World& world, Row& row, const DataSets& data) {
    monitor::reset_peak_host_bytes();
    LayoutRun run(world, job_of(row), data, row.layout);
    train::Member& first = run.team().first();
    for (int64_t i = 0; i < kWarmUp; ++i) run.step();
    first.timer.take_interval();
    world.barrier();
    const double cpu = cpu_seconds(), begin = monitor::steady_seconds();
    std::vector<double> rates;
    for (int64_t i = 0; i < steps_a_round(); ++i) {
      const double at = monitor::steady_seconds();
      const train::StepOutcome outcome = run.step();
      rates.push_back(outcome.metrics.samples / (monitor::steady_seconds() - at));
    }
    const double wall = monitor::steady_seconds() - begin;
    const std::vector<double> cpus = world.all_gather_values(cpu_seconds() - cpu);
    const std::vector<uint64_t> peaks = world.all_gather_values(monitor::peak_host_bytes());
    const DeviceMemory last =
        world.all_gather_values(memory_in_all(run.team()[run.team().size() - 1])).back();
    if (world.rank() != 0) return;
    if (round_ == 0) {
      std::vector<std::string> warnings = run.placement().warnings;
      if (const std::string note = first.device->precision_note(row.amp);
          !note.empty() && row.layout.name == layouts_.front().name)
        warnings.push_back(note);
      for (const std::string& w : warnings) console_.print(monitor::warning(w, console_.color()));
    }
    row.rates.insert(row.rates.end(), rates.begin(), rates.end());
    row.round_rates.push_back(median(rates));
    const monitor::PhaseTotals time = first.timer.take_interval();
    for (int i = 0; i < monitor::kPhases; ++i) row.time.seconds[i] += time.seconds[i];
    row.time.steps += time.steps;
    row.wall_seconds += wall;
    for (double c : cpus) row.cpu_seconds += c;
    row.first = memory_in_all(first);
    row.last = last;
    row.peak_host_bytes = std::max(row.peak_host_bytes, std::ranges::max(peaks));
  }

  void plan_memory(const DataSets& data) {
    if (root()) console_.print("largest micro-batch: compiling ever larger ones, without running them");
    const auto plan = [&](comm::World&) {
      std::map<std::pair<nn::Precision, int>, std::vector<PlannedMicro>> planned;  // by threads too
      for (Row& row : rows_) {
        auto& micros = planned[{row.amp, row.layout.threads}];
        if (micros.empty()) micros = plan_micros(job_of(row), *data.train, row.layout.threads, memory_limit_);
        row.largest_micro = largest_micro(row.first, plan_.micro, micros, memory_limit_);
      }
    };
    run_layout(world_, rows_.front().layout, plan);
  }

  // Over the first row, round by round.
  std::vector<double> speed_ups(const Row& row) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < row.round_rates.size(); ++i)
      ratios.push_back(row.round_rates[i] / rows_.front().round_rates[i]);
    return ratios;
  }

  double utilisation(const Row& row) const {
    return row.cpu_seconds / (row.wall_seconds * static_cast<double>(cores_));
  }

  std::string table() const {
    const monitor::Row heads{"layout",   "amp",    "devices", "threads",   "img/s",     "speed-up",
                             "data",     "fwd",    "bwd",     "comm",      "optim",     "other",
                             "device 0", "others", "peak",    "max micro", "cores used"};
    const auto percent = [](double share) { return fmt::format("{:.0f}%", 100 * share); };
    std::vector<monitor::Row> lines;
    for (const Row& row : rows_) {
      monitor::Row line{row.layout.name,
                        amp_name(row.amp),
                        row.layout.text(),
                        fmt::format("{}", row.layout.threads),
                        fmt::format("{:.1f}", median(row.rates)),
                        fmt::format("{:.2f}", median(speed_ups(row)))};
      for (double share : row.time.fractions()) line.push_back(percent(share));
      line.push_back(human_bytes(row.first.total));
      line.push_back(row.layout.devices() > 1 ? human_bytes(row.last.total) : "");
      line.push_back(human_bytes(row.peak_host_bytes));
      line.push_back(fmt::format("{}", row.largest_micro));
      line.push_back(percent(utilisation(row)));
      lines.push_back(line);
    }
    return monitor::table(
        fmt::format(
            "{} on {} devices: {} steps of {} samples (micro-batch {}), {} cores, {} a device at most",
            job_.model.name, devices_, steps_a_round() * kRounds, plan_.global, plan_.micro, cores_,
            human_bytes(memory_limit_)),
        heads, lines, console_.color());
  }

  nlohmann::ordered_json json_of(const Row& row) const {
    const std::vector<double> speed_up = speed_ups(row);
    const monitor::PhaseFractions shares = row.time.fractions();
    nlohmann::ordered_json time;
    for (int i = 0; i < monitor::kPhases; ++i) time[name_of(static_cast<monitor::Phase>(i))] = shares[i];
    nlohmann::ordered_json j{{"layout", row.layout.name},
                             {"amp", amp_name(row.amp)},
                             {"ranks", row.layout.ranks},
                             {"replicas", row.layout.replicas},
                             {"devices", row.layout.devices()},
                             {"dp_sync", row.layout.dp_sync},
                             {"threads", row.layout.threads},
                             {"samples_per_second", median(row.rates)},
                             {"speed_up", median(speed_up)},
                             {"speed_up_min", std::ranges::min(speed_up)},
                             {"speed_up_max", std::ranges::max(speed_up)},
                             {"time", time},
                             {"planned_bytes_device_0", row.first.total},
                             {"planned_bytes_other_devices", nullptr},
                             {"peak_host_bytes", row.peak_host_bytes},
                             {"largest_micro_batch", row.largest_micro},
                             {"utilisation", utilisation(row)}};
    if (row.layout.devices() > 1) j["planned_bytes_other_devices"] = row.last.total;
    return j;
  }

  void write() {
    nlohmann::ordered_json j{{"git", kRevision},
                             {"job", nlohmann::ordered_json::object()},
                             {"devices", devices_},
                             {"cores", cores_},
                             {"micro_batch", plan_.micro},
                             {"global_batch", plan_.global},
                             {"rounds", kRounds},
                             {"steps", steps_a_round() * kRounds},
                             {"memory_limit_bytes", memory_limit_},
                             {"rows", nlohmann::ordered_json::array()}};
    for (const Setting& s : settings(in_)) j["job"][s.key] = s.value;
    for (const Row& row : rows_) j["rows"].push_back(json_of(row));
    const fs::path file = fs::path(job_.run.dir) / "compare.json";
    std::error_code error;
    if (!job_.run.dir.empty()) fs::create_directories(job_.run.dir, error);
    if (error)
      throw UserError(fmt::format("run.dir '{}' cannot be made", job_.run.dir), error.message(),
                      "choose another '--run.dir'");
    monitor::write_whole(file, j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    console_.print(fmt::format("written to '{}'", file.string()));
  }

  comm::World& world_;
  Invocation in_;
  Job& job_ = in_.job;
  monitor::Console console_;
  size_t cores_ = 0;
  int devices_ = 0;
  train::BatchPlan plan_;
  std::vector<Layout> layouts_;
  uint64_t memory_limit_ = 0;
  std::vector<Row> rows_;
  int64_t round_ = 0;
};

}  // namespace

int compare_command(comm::World& world, const Invocation& invocation) {
  return CompareCommand(world, invocation).run();
}

}  // namespace lockstep::app
