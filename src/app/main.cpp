// trainer: a table of commands.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>

#include "app/commands.h"
#include "app/job.h"
#include "app/quickstart.h"
#include "app/session.h"
#include "comm/world.h"
#include "core/error.h"

using namespace lockstep;

namespace {

int run(comm::World& world, int argc, char** argv, char** env) {
  const std::map<std::string, int (*)(comm::World&, const app::Invocation&)> commands{
      {"train", app::train_command},
      {"evaluate", app::evaluate_command},
      {"verify", app::verify_command},
      {"compare", app::compare_command}};
  app::Invocation invocation;
  world.together([&] { invocation = app::parse(argc, argv, env, app::built_in_job()); });
  app::require_same_job(world, invocation);
  if (invocation.help) {
    if (world.rank() == 0) std::fputs(invocation.help->c_str(), stdout);
    return kDone;
  }
  app::give_built_in_data(world, invocation);
  return commands.at(invocation.command)(world, invocation);
}

}  // namespace

int main(int argc, char** argv, char** env) {
  // A closed pipe behind us, or a limit on file sizes, is an error of that one write, and no end of training.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    comm::World world;
    try {
      return run(world, argc, argv, env);
    } catch (const comm::AgreedExit& e) {
      return e.exit_code;
    } catch (const std::exception& e) {
      world.fail(e);
    }
  } catch (const Error& e) {  // no world
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return kInternalError;
  }
}
