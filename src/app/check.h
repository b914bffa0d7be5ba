// What no option can see on its own: files that must exist, settings that contradict or have no effect.
#pragma once

#include <string>
#include <vector>

#include "app/job.h"

namespace lockstep::app {

/// Appends to `problems` one line each, with where the values came from, and to invocation.warnings.
void check(Invocation& invocation, std::vector<std::string>& problems);

}  // namespace lockstep::app
