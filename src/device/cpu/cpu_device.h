#pragma once

#include <memory>

#include "device/device.h"

namespace lockstep::device {

/// The CPU through oneDNN, with `threads` OpenMP threads for the calling thread (0: one for each core of its
/// affinity mask).
std::unique_ptr<Device> make_cpu_device(int threads);

/// "2.6.3", of oneDNN as it runs.
std::string library_version();

/// Cores that this thread may run on.
int cores_in_affinity_mask();

}  // namespace lockstep::device
