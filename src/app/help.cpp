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

std::string sections_help(const std::vector<std::string>& wanted) {
  namespace po = boost::program_options;
  Job defaults;
  std::vector<po::options_description> groups;
  std::string section;
  for (const Option& o : options(defaults)) {
    if (!wanted.empty() && std::ranges::find(wanted, o.section()) == wanted.end()) continue;
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
  std::vector<std::string> sections;
  if (command.empty()) {
    text += "Commands ('trainer COMMAND --help' says more):\n";
    for (const Command& c : commands()) text += fmt::format("  {:<14}{}\n", c.name, c.summary);
    text += "\nModels (model.name):\n";
    for (const models::ModelInfo& m : models::list()) text += fmt::format("  {:<14}{}\n", m.name, m.summary);
  } else {
    const std::vector<Command> known = commands();
    const auto c = std::ranges::find(known, command, &Command::name);
    text += fmt::format("{}.\n", c->summary);
    sections = c->sections;
  }
  text += "\nShort forms:\n";
  for (const auto& [name, key] : short_forms()) text += fmt::format("  --{:<10}for --{}\n", name, key);
  text +=
      "\nA value comes from, later wins: the default, the job file (INI: [section], key = value), the "
      "environment\n"
      "(LOCKSTEP_SECTION_KEY), the command line.\n";
  return text + sections_help(sections);
}

}  // namespace lockstep::app
