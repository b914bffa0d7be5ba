#include "comm/self.h"

#include "core/error.h"

namespace lockstep::comm {

void Self::abort() { aborted_ = true; }

uint64_t Self::submit(const Operation&) {
  ++submitted_;
  if (!aborted_) completed_ = submitted_;
  return submitted_;
}

void Self::wait(uint64_t ticket) {
  if (!done(ticket))
    throw ClusterError("the collective operations were abandoned", "another part of this rank gave up",
                       "look at the message before");
}

}  // namespace lockstep::comm
