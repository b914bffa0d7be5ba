#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

#include "app/options.h"
#include "models/registry.h"

namespace lockstep::app {
namespace {

constexpr unsigned kColumns = 110;

std::string describe(const Option& option) {
  std::string text = option.help;
  if (!option.accepts.empty() && option.unit.find('|') == std::string::npos)
    text += " [" + option.accepts + "]";
  return text;
}

std::string options_help(const Command* command) {
  namespace po = boost::program_options;
  Job defaults;
  std::vector<po::options_description> groups;
  std::string section;
  for (const Option& o : options(defaults)) {
    if (command && !command->reads(o)) continue;
    if (groups.empty() || section != o.section()) groups.emplace_back(section = o.section(), kColumns, 70);
    std::string value = o.get();
    auto* semantic =
        po::value<std::string>()->value_name(value.empty() ? o.unit : o.unit + " (=" + value + ")");
    groups.back().add_options()(o.key.c_str(), semantic, describe(o).c_str());
  }
  po::options_description all("", kColumns, 70);
  for (const auto& group : groups) all.add(group);
  std::ostringstream out;
  out << all;
  return out.str();
}

}  // namespace

std::string help_text(const std::string& command) {
  std::string text = fmt::format("usage: trainer {} [--job FILE.ini] [--section.key VALUE ...]\n\n",
                                 command.empty() ? "[COMMAND]" : command);
  const std::vector<Command> known = commands();
  const auto chosen = std::ranges::find(known, command, &Command::name);
  if (chosen == known.end()) {
    text += "Commands ('trainer COMMAND --help' says more):\n";
    for (const Command& c : known) text += fmt::format("  {:<14}{}\n", c.name, c.summary);
    text += "\nModels (model.name):\n";
    for (const models::ModelInfo& m : models::list()) text += fmt::format("  {:<14}{}\n", m.name, m.summary);
  } else {
    text += fmt::format("{}.\n", chosen->summary);
  }
  text += "\nShort forms:\n";
  for (const auto& [name, key] : short_forms()) text += fmt::format("  --{:<10}for --{}\n", name, key);
  text +=
      "\nA value comes from, later wins: the default, the job file (INI: [section], key = value), the "
      "environment\n"
      "(LOCKSTEP_SECTION_KEY), the command line.\n";
  return text + options_help(chosen == known.end() ? nullptr : &*chosen);
}

}  // namespace lockstep::app
