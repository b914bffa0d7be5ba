#include <fmt/format.h>

#include "app/batch.h"
#include "app/commands.h"
#include "app/session.h"
#include "checkpoint/load.h"
#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "monitor/phase_timer.h"
#include "monitor/run_directory.h"
#include "train/evaluate.h"
#include "train/model_state.h"

namespace lockstep::app {

namespace fs = std::filesystem;

// From --resume (a checkpoint with the averaged weights, where it has any: what training evaluates too), or from
// model.weights. Returns what it took.
static std::string load(const std::string& found, const Job& job, device::Store& store) {
  if (found.empty()) {
    if (job.model.weights.empty())
      throw UserError("no checkpoint to evaluate", "--resume 'auto' finds no whole one in run.dir, or in the job's newest run",
                      "give --run.dir, --resume PATH or --model.weights FILE");
    train::load_weights(checkpoint::SafetensorsFile(job.model.weights), store);
    return job.model.weights;
  }
  const checkpoint::Checkpoint c = checkpoint::load_checkpoint(found, checkpoint::Verify::sizes);
  train::load_weights(c.model(), store);
  const bool averaged = train::load_average(c.optimizer(), store);
  return found + (averaged ? " (averaged weights)" : "");
}

int evaluate_command(comm::World& world, const Invocation& invocation) {
  const Job& job = invocation.job;
  world.set_timeout(job.parallel.collective.timeout);
  monitor::Console console(stdout, color_mode(job));
  const DataSets data = open_data(world, job);
  const Placement placement = place(world, job.device.threads);
  std::unique_ptr<device::Device> device;
  std::unique_ptr<train::Replica> replica;
  std::unique_ptr<data::Loader> loader;
  const std::string found = find_checkpoint(world, invocation, console);
  std::string weights;
  world.together([&] {
    const int64_t micro = job.batch.micro > 0 ? job.batch.micro : kDefaultMicroBatch;
    device = device::make_cpu_device(placement.threads);
    replica = make_replica(*device, job, model_for(job, *data.eval, false), std::min(micro, data.eval->num_samples()));
    weights = load(found, job, replica->store());
    loader = evaluation_loader(world, job, *data.eval, *replica, micro);
  });
  require_agreement(world, data, *replica);
  const double begin = monitor::steady_seconds();
  const train::Evaluation e = train::evaluate(*replica, *loader, world);
  if (world.rank() != 0) return kDone;
  const auto share = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(e.count); };
  console.print(monitor::table("evaluation", {},
                               {{"weights", weights},
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
