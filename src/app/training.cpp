#include "app/training.h"

#include <fmt/format.h>

#include <functional>
#include <new>

#include "app/batch.h"
#include "core/error.h"
#include "train/evaluate.h"
#include "train/loop.h"
#include "train/model_state.h"

namespace lockstep::app {

namespace {

class Builder {
 public:
  Builder(comm::World& world, const Job& job, const DataSets& data, const train::BatchPlan& plan)
      : world_(world), job_(job), data_(data), plan_(plan) {}

  std::unique_ptr<train::ReplicaTeam> run(const Placement& placement) {
    team_ = make_team(world_, job_, placement);
    within_memory([&] { build(); });
    within_memory([&] { connect(); });
    return std::move(team_);
  }

 private:
  // Where device 0 alone updates, the others keep no optimizer.
  bool has_optimizer(const train::Member& m) const {
    return job_.parallel.dp_sync == "allreduce" || m.device_index == 0;
  }

  void within_memory(const std::function<void()>& piece) {
    world_.together([&] {
      try {
        piece();
      } catch (const std::bad_alloc&) {
        throw UserError(
            "the run does not fit into memory",
            fmt::format("the system gives no more for model '{}' with micro-batches of '{}' samples",
                        job_.model.name, plan_.micro),
            kUseLess);
      }
    });
  }

  void build() {
    const data::ClassificationSet& set = *data_.train;
    if (plan_.micro > set.num_samples())
      throw UserError(fmt::format("batch.micro '{}' is larger than the data", plan_.micro),
                      fmt::format("'{}' has '{}' samples", set.path(), set.num_samples()),
                      fmt::format("use a batch.micro of at most '{}'", set.num_samples()));
    model_ = model_for(job_, set, set.num_classes(), true);
    if (data_.eval) {
      const models::ModelOptions eval = model_for(job_, *data_.eval, set.num_classes(), false);
      if (eval.height != model_.height || eval.width != model_.width)
        throw UserError("training and evaluation see images of different sizes",
                        fmt::format("training '{} x {}', evaluation '{} x {}'", model_.height, model_.width,
                                    eval.height, eval.width),
                        "set data.size, and data.resize for the evaluation's resize before its centre crop");
    }
    const data::Order order = data::make_order(set, plan_.global, job_.train.seed, true, job_.data.drop_last);
    train::check(job_.schedule, job_.optim.lr, train::total_steps(job_.train, order.batches_per_epoch()),
                 order.batches_per_epoch());
    team_->run([&](train::Member& m) { build(m, order); });
  }

  void build(train::Member& m, const data::Order& order) {
    make_replica(m, job_, model_, plan_.micro);
    m.train =
        std::make_unique<data::Loader>(*data_.train, order, job_.transforms,
                                       data::LoaderOptions{.micro_batch = plan_.micro,
                                                           .shards_per_step = plan_.shards,
                                                           .first_shard = m.device_index * plan_.accumulation,
                                                           .num_shards = plan_.accumulation,
                                                           .threads = job_.data.threads,
                                                           .prefetch = job_.data.prefetch,
                                                           .train = true});
    if (order.num_samples >= plan_.micro) m.replica->program(device::Mode::train, plan_.micro);
    const int64_t tail = order.num_samples % plan_.micro;
    if (tail > 0 && !job_.data.drop_last) m.replica->program(device::Mode::train, tail);
    if (data_.eval) make_evaluation(m, world_.size() * team_->size(), job_, *data_.eval, plan_.micro);
    if (has_optimizer(m))
      m.optimizer =
          std::make_unique<train::Optimizer>(*m.device, m.store(), job_.optim, job_.train.ema_decay);
  }

  void connect() {
    auto collectives = comm::make_collectives(world_, team_->size(), job_.parallel.collective);
    for (int i = 0; i < team_->size(); ++i) (*team_)[i].collective = std::move(collectives[i]);
    team_->run([&](train::Member& m) {
      train::StepOptions options{.plan = plan_,
                                 .seed = job_.train.seed,
                                 .clip_norm = job_.optim.clip_norm,
                                 .bucket_mib = job_.parallel.bucket_mib,
                                 .wire = job_.parallel.collective.compress,
                                 .sync_batch_norm = job_.model.sync_batch_norm,
                                 .root = job_.parallel.dp_sync == "root"};
      if (job_.amp.mode == nn::Precision::fp16) options.scaler = job_.amp.scaler;
      m.step = std::make_unique<train::Step>(*m.replica, *m.collective, m.optimizer.get(), options);
    });
  }

  comm::World& world_;
  const Job& job_;
  const DataSets& data_;
  const train::BatchPlan& plan_;
  models::ModelOptions model_;
  std::unique_ptr<train::ReplicaTeam> team_;
};

}  // namespace

train::BatchPlan plan_batch(const Job& job, int devices) {
  const train::BatchPlan plan = resolve_batch(job.batch, devices);
  if (job.parallel.collective.reduction == comm::Reduction::exact) check_exact(plan, devices);
  return plan;
}

std::unique_ptr<train::ReplicaTeam> make_training(comm::World& world, const Job& job, const DataSets& data,
                                                  const train::BatchPlan& plan, const Placement& placement) {
  return Builder(world, job, data, plan).run(placement);
}

void start_parameters(train::ReplicaTeam& team, const Job& job) {
  team.run([&](train::Member& m) {
    m.store().initialize(job.train.seed);
    if (!job.model.weights.empty())
      train::load_weights(checkpoint::SafetensorsFile(job.model.weights), m.store());
    m.store().refresh_copies();
    if (m.optimizer) m.optimizer->reset_average();
  });
}

std::vector<std::pair<std::string, uint64_t>> memory_of(const train::Member& m) {
  return {{"parameters", m.store().values().size_bytes()},
          {"gradients", m.store().gradients().size_bytes()},
          {"optimizer", m.optimizer ? m.optimizer->bytes() : 0},
          {"accumulation", m.step->bytes()},
          {"copies of weights", m.store().copy_bytes()},
          {"activations", m.replica->memory().arena},
          {"loader", m.train->memory().size()}};
}

}  // namespace lockstep::app
