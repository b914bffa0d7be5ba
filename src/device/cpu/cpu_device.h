#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"

namespace lockstep::device {

/// The CPU through oneDNN, with `threads` OpenMP threads for the calling thread (0: one for each core of its
/// affinity mask). The calling thread, and those that it will start, may then run on `cores` only; empty: as
/// before. `native_bf16` overrules where products of bf16 are computed, in the library's bf16 kernels or in
/// fp32: for tests and benchmarks of both; otherwise the processor decides. Throws UserError where the system
/// refuses the cores.
std::unique_ptr<Device> make_cpu_device(int threads, std::span<const int> cores = {},
                                        std::optional<bool> native_bf16 = {});

/// "2.6.3", of oneDNN as it runs.
std::string library_version();

/// Cores that this thread may run on, ascending.
std::vector<int> cores_in_affinity_mask();

}  // namespace lockstep::device
