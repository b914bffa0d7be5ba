#include "train/stop_signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "core/error.h"

namespace lockstep::train {
namespace {

/// How a child process that runs `body` ends: its exit code, or 128 + the signal that ended it.
int end_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StopSignals, TheFirstOneIsRememberedByName) {
  EXPECT_EQ(end_of([] {
              const StopSignals signals({"USR1", "TERM", "INT"});
              if (signals.requested() || !signals.name().empty()) return 1;
              raise(SIGINT);
              return signals.requested() && signals.name() == "INT" ? 0 : 2;
            }),
            0);
}

TEST(StopSignals, OnlyASecondInterruptEndsTheProcess) {
  for (const int number : {SIGUSR1, SIGTERM})
    EXPECT_EQ(end_of([number] {
                const StopSignals signals({"USR1", "TERM", "INT"});
                for (int i = 0; i < 3; ++i) raise(number);
                raise(SIGINT);
                raise(number);
                return signals.requested() ? 0 : 1;
              }),
              0);
  EXPECT_EQ(end_of([] {
              const StopSignals signals({"USR1", "TERM", "INT"});
              raise(SIGINT);
              raise(SIGINT);
              return 0;
            }),
            128 + SIGINT);
}

TEST(StopSignals, FormerHandlersComeBack) {
  EXPECT_EQ(end_of([] {
              signal(SIGINT, SIG_IGN);
              {
                const StopSignals signals({"INT"});
                raise(SIGINT);
              }
              raise(SIGINT);
              return 0;
            }),
            0);
}

TEST(StopSignals, ThoseThatCannotBeCaughtAreRefused) {
  EXPECT_THROW(StopSignals({"KILL"}), UserError);
  EXPECT_THROW(StopSignals({"USR1", "USR3"}), UserError);
}

}  // namespace
}  // namespace lockstep::train
