// What training and evaluating set up alike: data, device, replica, and the agreement of all ranks on them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/job.h"
#include "comm/world.h"
#include "data/classification_set.h"
#include "data/loader.h"
#include "models/registry.h"
#include "monitor/console.h"
#include "train/batch_plan.h"
#include "train/replica_team.h"

namespace lockstep::app {

/// Runs `work`, where a rank has any, on a thread beside the calling one, while all ranks stay in touch: it
/// may take longer than their patience with each other. What it throws ends as in comm::World::together().
void in_touch(comm::World& world, const std::function<void()>& work);

/// Throws AgreedExit on all ranks unless they run the same build, command and job; the message names the
/// first option that differs, the ranks and both values.
void require_same_job(comm::World& world, const Invocation& invocation);

/// What runs/NAME-NNNN are called: the job file's name, "quickstart" for the built-in job, else the model's.
std::string job_name(const Invocation& invocation);
/// The run that `--resume auto` means: run.dir, or the job's newest under runs/; empty where there is none.
std::filesystem::path newest_run(const Invocation& invocation);
/// Path of the checkpoint that checkpoint.resume names; empty for `never`, and where `auto` finds none. Rank
/// 0 looks and verifies, and names damaged ones that it passes over on `console`; all ranks take its answer.
/// Throws AgreedExit where there are only damaged ones.
std::string find_checkpoint(comm::World& world, const Invocation& invocation, monitor::Console& console);

monitor::ColorMode color_mode(const Job& job);

/// Where each device computes.
struct Placement {
  int threads = 1;                      ///< of each of this rank's devices
  std::vector<std::vector<int>> cores;  ///< of each of them; empty: they are not bound
  std::vector<monitor::WorldRow> rows;  ///< of all devices of the run, without what they are
  std::vector<std::string> warnings;
};
/// Cores come from the affinity mask, shared out evenly among the ranks of a host that have the same one, and
/// among the replicas of a rank. All ranks together. Throws UserError for a device that does not exist.
Placement place(comm::World& world, const Job& job);

/// The replicas of this rank, each with its device.
std::unique_ptr<train::ReplicaTeam> make_team(comm::World& world, const Job& job, const Placement& placement);

/// The data sets of a job, opened and checked against each other.
struct DataSets {
  std::optional<data::ClassificationSet> train, eval;
  /// What of them a run is a function of, by name: contents, order in which they are read, normalisation.
  std::map<std::string, std::string> facts;
};
/// Opens what the job names; for evaluation, data.eval only. Training settles data.mean and data.std where
/// they were left open: those of data.train, for data.eval too. A file that stores no hash is read for it,
/// once a host. Throws UserError; all ranks together.
DataSets open_data(comm::World& world, Invocation& invocation, bool train);
/// Of a set's class names; "none" where the file names none.
std::string class_names_hash(const data::ClassificationSet& set);

/// The model for the data: image size comes from `set` through the transforms.
models::ModelOptions model_for(const Job& job, const data::ClassificationSet& set, int64_t classes,
                               bool train);
/// Throws UserError unless a model of so many classes, which `owner` has, can be measured on `eval`.
void require_classes(const data::ClassificationSet& eval, int64_t classes, const std::string& owner);

/// Gives the member its replica.
void make_replica(train::Member& member, const Job& job, const models::ModelOptions& model,
                  int64_t micro_batch);

/// Gives the member the loader of its share of an evaluation over `devices`, and compiles its programs.
void make_evaluation(train::Member& member, int devices, const Job& job, const data::ClassificationSet& set,
                     int64_t micro_batch);

/// Throws AgreedExit on all ranks unless they agree on the data and every parameter's name, shape, layout and
/// value; the message names the first that differs, the ranks and both values.
void require_agreement(comm::World& world, const DataSets& data, train::ReplicaTeam& team);

/// Versions of what computed, for checkpoints and summaries.
std::map<std::string, std::string> versions();

}  // namespace lockstep::app
