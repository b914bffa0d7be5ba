#include "comm/worker.h"

#include <sys/prctl.h>

#include <chrono>
#include <utility>

#include "core/error.h"

namespace lockstep::comm {

Worker::Worker(std::unique_ptr<Algorithm> algorithm, int device, int num_devices)
    : algorithm_(std::move(algorithm)), device_(device), num_devices_(num_devices) {
  algorithm_->watch(&aborted_);
  thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  aborted_.store(true, std::memory_order_release);
  algorithm_->abort();
  submitted_changed_.notify_all();
  thread_.join();
}

void Worker::abort() {
  aborted_.store(true, std::memory_order_release);
  algorithm_->abort();
  fail(std::make_exception_ptr(ClusterError("the collective operations were abandoned",
                                            "another part of this rank gave up",
                                            "look at the message before")));
}

void Worker::fail(std::exception_ptr failure) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  submitted_changed_.notify_all();
  completed_changed_.notify_all();
}

uint64_t Worker::submit(const Operation& operation) {
  std::unique_lock lock(mutex_);
  completed_changed_.wait(lock, [&] { return submitted_ - completed_ < kRing || failure_; });
  if (failure_) return ++submitted_;  // wait() throws it
  ring_[submitted_ % kRing] = operation;
  ++submitted_;
  submitted_changed_.notify_one();
  return submitted_;
}

void Worker::wait(uint64_t ticket) {
  if (done(ticket)) return;
  std::unique_lock lock(mutex_);
  completed_changed_.wait(lock, [&] { return completed_ >= ticket || failure_; });
  if (completed_ < ticket) std::rethrow_exception(failure_);
}

void Worker::run() {
  prctl(PR_SET_NAME, "lockstep-comm");
  prctl(PR_SET_TIMERSLACK, 5000);  // ns: else a sleep of 10 us takes 60
  try {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !failure_) {
      if (submitted_ == completed_) {
        submitted_changed_.wait_for(lock, std::chrono::milliseconds(100));
        if (submitted_ == completed_ && !stopping_ && !failure_) {
          lock.unlock();
          algorithm_->idle();
          lock.lock();
        }
        continue;
      }
      const uint64_t number = completed_ + 1;
      const Operation operation = ring_[completed_ % kRing];
      lock.unlock();
      algorithm_->run(operation, number);
      lock.lock();
      completed_.store(number, std::memory_order_release);
      completed_changed_.notify_all();
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

}  // namespace lockstep::comm
