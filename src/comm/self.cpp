#include "comm/self.h"

#include <utility>

#include "core/error.h"

namespace lockstep::comm {

void Self::abort() { aborted_ = true; }

CollectiveStats Self::take_stats() { return std::exchange(stats_, {}); }

uint64_t Self::submit(const Operation& operation) {
  ++submitted_;
  if (aborted_) return submitted_;
  completed_ = submitted_;
  stats_.operations += 1;
  stats_.bytes += operation.bytes();
  return submitted_;
}

void Self::wait(uint64_t ticket) {
  if (!done(ticket))
    throw ClusterError("the collective operations were abandoned", "another part of this rank gave up",
                       "look at the message before");
}

}  // namespace lockstep::comm
