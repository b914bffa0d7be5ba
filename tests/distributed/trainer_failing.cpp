// The trainer with faults. The linker puts the wraps below around what a run calls (CMakeLists.txt), and the
// environment says what happens where. A point is passed again and again by each device, on the thread that
// computes for it or communicates for it:
//   TRAINER_FAULT="POINT DEVICE N KIND"  its N-th passage, from 1, throws an internal, user or cluster error
//   TRAINER_SLOW="POINT DEVICE MS"       each passage takes so much longer; DEVICE -1: on every device
// When the fault comes, its time on the steady clock, which all processes share, is left in `fault_time`.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "comm/roll_call.h"
#include "comm/worker.h"
#include "core/error.h"
#include "data/loader.h"
#include "device/cpu/cpu_device.h"
#include "train/replica.h"
#include "train/replica_team.h"

namespace lockstep {
namespace {

thread_local int device_here = -1;

struct Event {
  std::string point, kind;
  int device = 0, number = 0;
  bool is(std::string_view passed) const {
    return passed == point && (device == -1 || device == device_here);
  }
};

Event event_of(const char* variable) {
  Event event;
  const char* text = std::getenv(variable);
  std::istringstream(text ? text : "") >> event.point >> event.device >> event.number >> event.kind;
  return event;
}

void pass(std::string_view point) {
  static const Event fault = event_of("TRAINER_FAULT"), slow = event_of("TRAINER_SLOW");
  static std::atomic<int> passages = 0;
  if (slow.is(point)) std::this_thread::sleep_for(std::chrono::milliseconds(slow.number));
  if (!fault.is(point) || ++passages != fault.number) return;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream("fault_time") << std::fixed << now.count();
  const std::string what = "a fault in " + fault.point + " on device " + std::to_string(fault.device);
  if (fault.kind == "user") throw UserError(what, "it was asked for", "ask for none");
  if (fault.kind == "cluster") throw ClusterError(what, "it was asked for", "ask for none");
  throw std::runtime_error(what);
}

class FailingProgram final : public device::Program {
 public:
  FailingProgram(Program& real, device::Mode mode)
      : real_(real), forward_(mode == device::Mode::train ? "forward" : "evaluation") {}
  void load(const nn::Batch& batch) override { real_.load(batch); }
  void forward(const device::PassKey& key) override {
    pass(forward_);
    real_.forward(key);
  }
  // Between two ranges: what was ready is under way.
  void backward(const std::function<void(device::Range)>& on_ready) override {
    real_.backward([&](device::Range ready) {
      on_ready(ready);
      pass("backward");
    });
  }
  void forward_empty() override { real_.forward_empty(); }
  void backward_empty(const std::function<void(device::Range)>& on_ready) override {
    real_.backward_empty(on_ready);
  }
  void logits(std::span<float> out) const override { real_.logits(out); }
  device::ProgramMemory memory() const override { return real_.memory(); }
  device::ProgramCounts counts() const override { return real_.counts(); }

 private:
  Program& real_;
  const std::string_view forward_;
};

/// Tells its communication thread whose it is.
class NamedAlgorithm final : public comm::Algorithm {
 public:
  NamedAlgorithm(std::unique_ptr<Algorithm> real, int device) : real_(std::move(real)), device_(device) {}
  void run(const comm::Operation& operation, uint64_t number) override {
    device_here = device_;
    real_->run(operation, number);
  }
  void idle() override { real_->idle(); }
  comm::Slice slice(size_t count, int device) const override { return real_->slice(count, device); }
  void watch(const std::atomic<bool>* aborted) override { real_->watch(aborted); }
  void abort() override { real_->abort(); }

 private:
  const std::unique_ptr<Algorithm> real_;
  const int device_;
};

}  // namespace
}  // namespace lockstep

using namespace lockstep;

// The mangled names are those that CMakeLists.txt lists. A method's first argument is its object.
#define WRAP(RESULT, SYMBOL, ...)                 \
  extern "C" RESULT __real_##SYMBOL(__VA_ARGS__); \
  extern "C" RESULT __wrap_##SYMBOL(__VA_ARGS__)

// What extern "C" returns is C++'s all the same.
#pragma GCC diagnostic ignored "-Wreturn-type"

// device::make_cpu_device
WRAP(std::unique_ptr<device::Device>,
     _ZN8lockstep6device15make_cpu_deviceEiSt4spanIKiLm18446744073709551615EESt8optionalIbE, int threads,
     std::span<const int> cores, std::optional<bool> native_bf16) {
  pass("setup");
  return __real__ZN8lockstep6device15make_cpu_deviceEiSt4spanIKiLm18446744073709551615EESt8optionalIbE(
      threads, cores, native_bf16);
}

// train::Replica::program
WRAP(device::Program&, _ZN8lockstep5train7Replica7programENS_6device4ModeEl, train::Replica* replica,
     device::Mode mode, int64_t samples) {
  static thread_local std::map<device::Program*, FailingProgram> programs;
  device::Program& real = __real__ZN8lockstep5train7Replica7programENS_6device4ModeEl(replica, mode, samples);
  return programs.try_emplace(&real, real, mode).first->second;
}

// data::Loader::next
WRAP(const nn::Batch*, _ZN8lockstep4data6Loader4nextEv, data::Loader* loader) {
  pass("loading");
  return __real__ZN8lockstep4data6Loader4nextEv(loader);
}

// train::ReplicaTeam::run
WRAP(void, _ZN8lockstep5train11ReplicaTeam3runERKSt8functionIFvRNS0_6MemberEEE, train::ReplicaTeam* team,
     const std::function<void(train::Member&)>& piece) {
  __real__ZN8lockstep5train11ReplicaTeam3runERKSt8functionIFvRNS0_6MemberEEE(team, [&](train::Member& m) {
    device_here = m.device_index;
    piece(m);
  });
}

// The constructor of comm::Worker
WRAP(void, _ZN8lockstep4comm6WorkerC1ESt10unique_ptrINS0_9AlgorithmESt14default_deleteIS3_EEii,
     comm::Worker* worker, std::unique_ptr<comm::Algorithm> algorithm, int device, int num_devices) {
  __real__ZN8lockstep4comm6WorkerC1ESt10unique_ptrINS0_9AlgorithmESt14default_deleteIS3_EEii(
      worker, std::make_unique<NamedAlgorithm>(std::move(algorithm), device), device, num_devices);
}

// comm::tree_sum, within a rank; comm::RollCall::enter, between ranks
WRAP(void, _ZN8lockstep4comm8tree_sumENS_5DtypeEPSt4byteSt4spanIKPKS2_Lm18446744073709551615EEm, Dtype dtype,
     std::byte* sum, std::span<const std::byte* const> sources, size_t bytes) {
  pass("communication");
  __real__ZN8lockstep4comm8tree_sumENS_5DtypeEPSt4byteSt4spanIKPKS2_Lm18446744073709551615EEm(dtype, sum,
                                                                                              sources, bytes);
}
WRAP(void, _ZN8lockstep4comm8RollCall5enterERKNS0_9OperationEm, comm::RollCall* roll_call,
     const comm::Operation& operation, uint64_t number) {
  pass("communication");
  __real__ZN8lockstep4comm8RollCall5enterERKNS0_9OperationEm(roll_call, operation, number);
}
