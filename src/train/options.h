// What a user may set about a training run; the sections of docs/jobs.md. Plain values: the job parser
// (src/app) fills and checks them, the code of this room reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "nn/precision.h"
#include "train/grad_scaler.h"

namespace lockstep::train {

/// Section `train`: how long, how often to evaluate, the loss. Training ends at the first limit reached.
struct TrainOptions {
  int64_t epochs = 3;            ///< passes over the data; 0 is no limit
  int64_t steps = 0;             ///< taken optimizer steps; 0 is no limit
  double minutes = 0;            ///< wall time; 0 is no limit
  uint64_t seed = 1;             ///< of initialisation, order, augmentation and dropout
  int64_t eval_every = 1;        ///< epochs between evaluations; 0 evaluates at the end only
  int64_t eval_every_steps = 0;  ///< steps between evaluations, besides those by epoch; 0 is off
  double label_smoothing = 0;    ///< PyTorch's CrossEntropyLoss(label_smoothing)
  double ema_decay = 0;          ///< of the moving average of the weights; 0 is off
};

/// Section `optim`: torch.optim.SGD (dampening 0) or torch.optim.AdamW.
struct OptimOptions {
  std::string name = "sgd";     ///< sgd | adamw
  double lr = 0.1;              ///< base learning rate, which the schedule scales
  double momentum = 0.9;        ///< sgd
  bool nesterov = false;        ///< sgd
  double weight_decay = 1e-4;   ///< sgd: added to the gradient; adamw: decoupled
  bool decay_norm_bias = true;  ///< also decay biases and normalisation parameters, as PyTorch does
  double beta1 = 0.9;           ///< adamw
  double beta2 = 0.999;         ///< adamw
  double eps = 1e-8;            ///< adamw
  double clip_norm = 0;         ///< largest global L2 norm of the gradient; 0 is off
};

/// Section `batch`, in samples; 0 is "work it out" (app::resolve_batch).
struct BatchOptions {
  int64_t micro = 0;         ///< samples of a shard: one forward and backward of one device
  int64_t global = 0;        ///< samples of a step over all devices
  int64_t accumulation = 0;  ///< shards of a step on each device
};

/// Section `parallel`.
struct ParallelOptions {
  int replicas = 1;          ///< devices that a rank drives, one thread each
  std::vector<int> devices;  ///< which of the rank's devices they are; empty: the first ones
  std::string dp_sync =
      "allreduce";  ///< allreduce: every device updates its parameters; root: device 0 does and sends them
  int64_t check_every = 0;  ///< steps between comparisons of all devices' parameters; 0 is off
  comm::CollectiveOptions collective;
  double bucket_mib = 8;  ///< gradient bytes reduced in one operation, in MiB
};

/// Section `amp`: mixed precision (docs/mixed-precision.md).
struct AmpOptions {
  nn::Precision mode = nn::Precision::fp32;  ///< what convolutions and matrix products compute in
  GradScalerOptions scaler;                  ///< fp16
};

/// Section `checkpoint`.
struct CheckpointOptions {
  int64_t every = 1000;  ///< steps between checkpoints; 0 saves at the end and on a stop signal only
  int64_t keep = 3;      ///< newest checkpoints kept, besides the best
  std::string resume =
      "never";  ///< never | auto (newest whole one of run.dir, or of the job's newest run) | path
  std::string best = "none";  ///< evaluation metric whose best checkpoint is kept: none | top1 | top5 | loss
};

/// Section `run`.
struct RunOptions {
  std::string dir;  ///< where the run writes; empty is the next free runs/JOB-NNNN
  std::vector<std::string> signals = {"USR1", "TERM", "INT"};  ///< checkpoint, then exit 3; names without SIG
};

/// Section `log`.
struct LogOptions {
  int64_t every = 50;          ///< steps between console lines and metrics records
  std::string color = "auto";  ///< auto (on a terminal, unless NO_COLOR is set) | always | never
};

/// Section `device`.
struct DeviceOptions {
  std::string name = "auto";  ///< auto | cpu
  int threads = 0;            ///< compute threads of a device; 0 is the cores of the affinity mask
};

/// Section `data`, but for the transforms (data/transforms.h).
struct DataOptions {
  std::string train;       ///< HDF5 file to train on
  std::string eval;        ///< HDF5 file to evaluate on; empty: no evaluation
  bool drop_last = false;  ///< leave out the last, partial global batch of an epoch
  int threads = 1;         ///< loader threads of a device; 0 decodes within the step
  int prefetch = 4;        ///< micro-batches decoded ahead
};

}  // namespace lockstep::train
