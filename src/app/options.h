// The table of every option: its key, what it accepts, the field of the job it sets.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/job.h"
#include "app/option.h"

namespace lockstep::app {

/// In the order of docs/jobs.md, section by section, bound to the fields of `job`.
std::vector<Option> options(Job& job);

/// `--short VALUE` for the key that it stands for.
std::vector<std::pair<std::string, std::string>> short_forms();

/// A command of the trainer, for help.
struct Command {
  std::string name, summary;
  std::vector<std::string> options;   ///< that it reads: whole sections, and keys
  std::vector<std::string> but = {};  ///< keys of these sections that it does not read
  bool reads(const Option& option) const;
};
std::vector<Command> commands();

/// `trainer --help` (empty command) or `trainer COMMAND --help`.
std::string help_text(const std::string& command);

}  // namespace lockstep::app
