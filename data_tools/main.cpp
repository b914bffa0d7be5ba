// datatool: makes and checks data files. One subcommand a file.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "command.h"
#include "core/error.h"

namespace lockstep::datatool {

static void print_usage(const std::vector<Command>& commands) {
  fmt::print("usage: datatool COMMAND [OPTIONS]\n\ncommands:\n");
  for (const Command& command : commands) fmt::print("  {:<12}{}\n", command.name, command.summary);
  fmt::print(
      "\n'datatool COMMAND --help' shows the options of a command; docs/data-format.md describes the "
      "files.\n");
}

static int run(const Words& words) {
  const std::vector<Command> commands = {pack_idx(), pack_cifar(), generate(), info(), verify()};
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_usage(commands);
    return words.empty() ? kUserError : kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == words[0]) {
      command.run(Words(words.begin() + 1, words.end()));
      return kDone;
    }
    names.push_back(command.name);
  }
  const std::string near = nearest(words[0], names);
  throw UserError(fmt::format("unknown command '{}'", words[0]),
                  near.empty() ? "" : fmt::format("did you mean '{}'?", near), "see 'datatool --help'");
}

}  // namespace lockstep::datatool

int main(int argc, char** argv) {
  try {
    return lockstep::datatool::run({argv + 1, argv + argc});
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "datatool: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "datatool: out of memory\n  the input is held in memory while it is packed\n");
    return lockstep::kUserError;
  } catch (const std::exception& error) {
    fmt::print(stderr, "datatool: internal error: {}\n", error.what());
    return lockstep::kInternalError;
  }
}
