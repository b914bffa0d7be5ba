// Between a replica's flat storage and the named tensors of checkpoints.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/save.h"
#include "checkpoint/tensors.h"
#include "device/program.h"
#include "train/optimizer.h"

namespace lockstep::train {

/// XXH3 over all parameters in name order, logical layout, f32: sixteen hex digits.
std::string params_hash(const device::Store& store, std::span<const float> values);

/// Parameters and buffers under PyTorch's names, with the num_batches_tracked that its batch norms carry.
std::vector<checkpoint::TensorSpec> model_specs(const device::Store& store);
/// "momentum_buffer.conv1.weight", "ema.conv1.weight", ...
std::vector<checkpoint::TensorSpec> optimizer_specs(const device::Store& store, Optimizer& optimizer);

/// Copies the replica's state into the snapshot's tensors.
void save_tensors(device::Store& store, Optimizer& optimizer, int64_t taken, checkpoint::Snapshot& snapshot);
/// Checks names and shapes first: throws UserError naming the first difference, and changes nothing then.
/// `optimizer` is null on a device without one.
void load_tensors(const checkpoint::SafetensorsFile& model, const checkpoint::SafetensorsFile& state,
                  device::Store& store, Optimizer* optimizer);
/// Anyone's weights to start from, in any floating dtype, with or without counters. Throws UserError listing
/// every name that is missing, extra or misshapen.
void load_weights(const checkpoint::SafetensorsFile& file, device::Store& store);
/// Puts the averaged weights of a checkpoint's optimizer state in place of the parameters; false where it
/// keeps none. load_weights() comes first: it checks the model. Throws UserError.
bool load_average(const checkpoint::SafetensorsFile& state, device::Store& store);

}  // namespace lockstep::train
