#include "app/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <future>
#include <limits>

#include "train/agreement.h"
#include "train/loop.h"

namespace lockstep::app {

namespace {

Job job_of(const Job& job, const Layout& layout) {
  Job mine = job;
  train::ParallelOptions& p = mine.parallel;
  p.replicas = layout.replicas;
  p.dp_sync = layout.dp_sync;
  if (!p.devices.empty()) p.devices.resize(layout.replicas);
  if (layout.threads > 0) mine.device.threads = layout.threads;
  return mine;
}

}  // namespace

std::string Layout::text() const { return fmt::format("{} x {}", ranks, replicas); }

void limit_to_steps(Invocation& invocation, int64_t usual) {
  Job& job = invocation.job;
  if (!typed(invocation, "train.steps") || job.train.steps == 0) job.train.steps = usual;
  job.train.epochs = 0;
  job.train.minutes = 0;
  job.data.eval.clear();
}

train::BatchPlan fix_batch(Job& job, int devices) {
  const train::BatchPlan plan = plan_batch(job, devices);
  job.batch = {plan.micro, plan.global, 0};
  return plan;
}

int most_replicas(int64_t shards, size_t cores) {
  const auto power = static_cast<int>(shards & -shards);  // the largest that divides
  return std::min(power, static_cast<int>(std::bit_floor(std::max<size_t>(2, cores))));
}

void run_layout(comm::World& world, const Layout& layout, const std::function<void(comm::World&)>& work) {
  if (layout.ranks > 1) return std::async(std::launch::async, [&] { work(world); }).get();
  const auto alone = [&] {
    comm::World mine = comm::World::alone();
    work(mine);
  };
  in_touch(world, world.rank() == 0 ? std::function<void()>(alone) : nullptr);
}

void equal_threads(comm::World& world, const Job& job, std::vector<Layout>& layouts) {
  int fewest = std::numeric_limits<int>::max();
  for (const Layout& layout : layouts)
    run_layout(world, layout,
               [&](comm::World& w) { fewest = std::min(fewest, place(w, job_of(job, layout)).threads); });
  for (int threads : world.all_gather_values(fewest)) fewest = std::min(fewest, threads);
  for (Layout& layout : layouts) layout.threads = fewest;
}

LayoutRun::LayoutRun(comm::World& world, const Job& job, const DataSets& data, const Layout& layout)
    : world_(world),
      job_(job_of(job, layout)),
      plan_(plan_batch(job_, layout.devices())),
      placement_(place(world, job_)),
      team_(make_training(world, job_, data, plan_, placement_)) {
  world_.together([&] { start_parameters(*team_, job_); });
  require_agreement(world_, data, *team_);
  train::check_agreement(*team_, world_, 0);
}

void LayoutRun::check_agreement() { train::check_agreement(*team_, world_, steps_); }

train::StepOutcome LayoutRun::step() {
  train::Member& first = team_->first();
  const int64_t epoch = first.train->order().batches_per_epoch();
  const double lr =
      train::lr(job_.schedule, job_.optim.lr, taken_, train::total_steps(job_.train, epoch), epoch);
  train::StepOutcome outcome;
  team_->run([&](train::Member& m) {
    m.timer.begin_step();
    const auto next = [&m]() -> const nn::Batch& { return *m.train->next(); };
    const train::StepOutcome mine = m.step->run(next, steps_, taken_, lr, false, m.timer);
    m.timer.end_step();
    if (&m == &first) outcome = mine;
  });
  ++steps_;
  taken_ += outcome.taken;
  return outcome;
}

}  // namespace lockstep::app
