// The communication thread: runs submitted operations one after the other, beside the thread that computes.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/algorithm.h"

namespace lockstep::comm {

/// Operations wait in a ring of fixed size; a submitter that is that far ahead blocks. They complete in
/// order, so a ticket is a count, and done() a comparison.
class Worker final : public Collective {
 public:
  Worker(std::unique_ptr<Algorithm> algorithm, int device, int num_devices);
  ~Worker() override;

  int device() const override { return device_; }
  int num_devices() const override { return num_devices_; }
  Slice slice(size_t count, int device) const override { return algorithm_->slice(count, device); }
  void abort() override;

 protected:
  uint64_t submit(const Operation& operation) override;
  void wait(uint64_t ticket) override;
  bool done(uint64_t ticket) const override { return completed_.load(std::memory_order_acquire) >= ticket; }

 private:
  static constexpr size_t kRing = 1024;

  void run();
  void fail(std::exception_ptr failure);

  const std::unique_ptr<Algorithm> algorithm_;
  const int device_, num_devices_;
  std::mutex mutex_;
  std::condition_variable submitted_changed_, completed_changed_;
  std::array<Operation, kRing> ring_;
  uint64_t submitted_ = 0;               // guarded by mutex_
  std::atomic<uint64_t> completed_ = 0;  // written under mutex_
  bool stopping_ = false;                // guarded by mutex_
  std::exception_ptr failure_;           // guarded by mutex_
  std::atomic<bool> aborted_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::comm
