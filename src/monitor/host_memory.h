// Memory of this process and its host, from /proc and /sys. The first two allocate nothing.
#pragma once

#include <cstdint>

namespace lockstep::monitor {

uint64_t host_bytes();       ///< now
uint64_t peak_host_bytes();  ///< the most so far (VmHWM)
/// From now on the peak is of what comes; false where the system does not allow that, and it stays.
bool reset_peak_host_bytes();
/// What this process may still take: MemAvailable of the host, or what its control group leaves, if less.
uint64_t available_host_bytes();

}  // namespace lockstep::monitor
