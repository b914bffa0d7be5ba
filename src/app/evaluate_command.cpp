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

// Weights come from --resume (a checkpoint or a run), or from model.weights.
static std::string weights_file(const Job& job) {
  const std::string& resume = job.checkpoint.resume;
  if (resume != "never" && resume != "auto") {
    const fs::path run = fs::path(resume) / monitor::kCheckpoints;
    const checkpoint::Checkpoint c =
        fs::exists(run) ? checkpoint::require_latest(run) : checkpoint::load_checkpoint(resume);
    return c.path / checkpoint::kModelFile;
  }
  if (!job.model.weights.empty()) return job.model.weights;
  throw UserError("evaluate needs weights", "neither --resume CHECKPOINT nor --model.weights FILE is given",
                  "give --resume runs/JOB-0001, one of its checkpoints, or a safetensors file");
}

int evaluate_command(comm::World& world, const Invocation& invocation) {
  const Job& job = invocation.job;
  const DataSets data = open_data(world, job);
  const Placement placement = place(world, job.device.threads);
  std::unique_ptr<device::Device> device;
  std::unique_ptr<train::Replica> replica;
  std::unique_ptr<data::Loader> loader;
  std::string file;
  world.together([&] {
    const int64_t micro = job.batch.micro > 0 ? job.batch.micro : kDefaultMicroBatch;
    device = device::make_cpu_device(placement.threads);
    replica = make_replica(*device, job, model_for(job, *data.eval, false), std::min(micro, data.eval->num_samples()));
    file = weights_file(job);
    train::load_weights(checkpoint::SafetensorsFile(file), replica->store());
    loader = evaluation_loader(world, job, *data.eval, *replica, micro);
  });
  require_agreement(world, job, data, *replica);
  const double begin = monitor::steady_seconds();
  const train::Evaluation e = train::evaluate(*replica, *loader, world);
  if (world.rank() != 0) return kDone;
  monitor::Console console;
  const auto share = [&](int64_t n) { return static_cast<double>(n) / static_cast<double>(e.count); };
  console.print(monitor::table("evaluation", {},
                               {{"weights", file},
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
