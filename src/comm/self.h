// The collective of a single device: nothing to sum, nothing to wait for.
#pragma once

#include "comm/collective.h"

namespace lockstep::comm {

class Self final : public Collective {
 public:
  int device() const override { return 0; }
  int num_devices() const override { return 1; }
  Slice slice(size_t count, int) const override { return {0, count}; }
  void abort() override;

 protected:
  uint64_t submit(const Operation& operation) override;
  void wait(uint64_t ticket) override;
  bool done(uint64_t ticket) const override { return ticket <= completed_; }

 private:
  uint64_t submitted_ = 0, completed_ = 0;
  bool aborted_ = false;
};

}  // namespace lockstep::comm
