// A job: everything that a user may set, read from defaults, a job file, the environment and the command
// line.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/transforms.h"
#include "train/options.h"
#include "train/schedule.h"

namespace lockstep::app {

/// Section `model`. Classes and image size come from the data.
struct ModelChoice {
  std::string name = "cnn";       ///< models/registry.h
  std::string weights;            ///< safetensors file to start from; empty: initialise
  std::optional<double> dropout;  ///< before the classifier; no value: the model's default
  bool sync_batch_norm = false;   ///< batch norm's statistics span all devices
};

/// Section `verify`.
struct VerifyOptions {
  int64_t max_ulp = 0;  ///< largest distance from the reference that passes
};

/// Section `compare`.
struct CompareOptions {
  int64_t memory_limit_mib = 0;  ///< of a device, for the largest micro-batch; 0 is what the host has
};

/// One member a section; docs/jobs.md says what each key means.
struct Job {
  ModelChoice model;
  train::DataOptions data;
  data::TransformOptions transforms;  ///< also section `data`
  train::TrainOptions train;
  train::BatchOptions batch;
  train::OptimOptions optim;
  train::ScheduleOptions schedule;
  train::AmpOptions amp;
  train::ParallelOptions parallel;
  train::CheckpointOptions checkpoint;
  train::RunOptions run;
  train::LogOptions log;
  train::DeviceOptions device;
  VerifyOptions verify;
  CompareOptions compare;
};

/// What the command line asked for.
struct Invocation {
  std::string command = "train";
  std::optional<std::string> help;  ///< set by --help: print it and leave; the job is then not checked
  Job job;
  std::string job_file;  ///< path of --job; empty without
  bool built_in =
      false;  ///< training without a job or data of its own: the quickstart, whose data is still to be set
  std::map<std::string, std::string>
      origin;  ///< by key: "default", "jobs/a.ini:12", "LOCKSTEP_TRAIN_SEED", "command line"
  std::vector<std::string> warnings;  ///< settings that have no effect, one line each
};

/// Reads `trainer [COMMAND] [--job FILE.ini] [--section.key VALUE ...]`. Later sources win: defaults, job
/// file, environment (LOCKSTEP_SECTION_KEY), command line. Where a command that trains is given neither --job
/// nor data.train, `quickstart` (INI text, may be empty) stands in for the job file. `env` is as main's third
/// argument: NAME=VALUE strings, then null; it may be null itself. Input paths come out absolute. Throws one
/// UserError that lists every problem and where it is.
Invocation parse(int argc, const char* const* argv, const char* const* env,
                 const std::string& quickstart = "");

/// The commands that train, if only a few steps: all but `evaluate`.
bool trains(const Invocation& invocation);

/// One option of a job, for people.
struct Setting {
  std::string key, value, origin;
};
inline constexpr const char* kDefaultOrigin = "default";
inline constexpr const char* kWorkedOut = "worked out";
inline constexpr const char* kCommandLine = "command line";
/// Whether an option was given for this start: by command line or environment.
bool typed(const Invocation& invocation, const std::string& key);
/// Every option in the order of docs/jobs.md.
std::vector<Setting> settings(const Invocation& invocation);

/// The job as a job file that parse() reads back to the same job.
std::string to_ini(const Job& job);
/// By key, the values in a text that to_ini() gave.
std::map<std::string, std::string> values_of_ini(const std::string& ini);

/// Equal on all ranks of one run. Leaves out what cannot change the result and may differ between hosts:
/// sections run, log, device, verify and compare, the loader's threads and prefetch, the timeout, and where
/// the data files lie (their contents are compared instead).
uint64_t job_hash(const Job& job);

}  // namespace lockstep::app
