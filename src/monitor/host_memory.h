// Resident memory of this process, from /proc/self. No allocation.
#pragma once

#include <cstdint>

namespace lockstep::monitor {

uint64_t host_bytes();       ///< now
uint64_t peak_host_bytes();  ///< the most so far (VmHWM)

}  // namespace lockstep::monitor
