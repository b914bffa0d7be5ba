#include "core/thread_team.h"

#include <utility>

namespace lockstep {

ThreadTeam::ThreadTeam(int members) {
  for (int i = 1; i < members; ++i) threads_.emplace_back([this, i] { work(i); });
}

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadTeam::run(const std::function<void(int)>& piece, const std::function<void()>& on_failure) {
  {
    std::lock_guard lock(mutex_);
    piece_ = &piece;
    on_failure_ = &on_failure;
    working_ = static_cast<int>(threads_.size());
    ++round_;
  }
  begun_.notify_all();
  perform(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return working_ == 0; });
  failing_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadTeam::perform(int member) {
  try {
    (*piece_)(member);
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;  // most likely a consequence of the first
      failure_ = std::current_exception();
      failing_ = true;
    }
    if (*on_failure_) (*on_failure_)();
  }
}

void ThreadTeam::work(int member) {
  uint64_t done = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [&] { return stopping_ || round_ != done; });
    if (stopping_) return;
    done = round_;
    lock.unlock();
    perform(member);
    lock.lock();
    if (--working_ == 0) ended_.notify_one();
  }
}

}  // namespace lockstep
