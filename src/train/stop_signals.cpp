#include "train/stop_signals.h"

#include <cstring>

#include "core/error.h"

namespace lockstep::train {

namespace {

// A handler can reach nothing but a global.
volatile std::sig_atomic_t received = 0;
void remember(int number) { received = number; }

int number_of(const std::string& name) {
  for (int n = 1; n < NSIG; ++n)
    if (const char* abbreviation = sigabbrev_np(n); abbreviation && name == abbreviation) return n;
  return 0;
}

}  // namespace

StopSignals::StopSignals(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  for (const std::string& name : names) {
    numbers.push_back(number_of(name));
    const int number = numbers.back();
    if (number == 0 || number == SIGKILL || number == SIGSTOP)
      throw UserError("run.signals: '" + name + "' cannot be used",
                      number ? "the system does not let it be caught" : "no signal has this name",
                      "name signals without SIG, such as USR1,TERM,INT");
  }
  received = 0;
  for (const int number : numbers) {
    struct sigaction action {
    }, old{};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    if (number == SIGINT) action.sa_flags |= SA_RESETHAND;  // the second one takes the default action
    sigaction(number, &action, &old);
    before_.emplace_back(number, old);
  }
}

StopSignals::~StopSignals() {
  for (const auto& [number, action] : before_) sigaction(number, &action, nullptr);
}

bool StopSignals::requested() const { return received != 0; }

std::string StopSignals::name() const { return received ? sigabbrev_np(received) : ""; }

}  // namespace lockstep::train
