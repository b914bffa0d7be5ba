#include "command.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::datatool {

namespace po = boost::program_options;

std::optional<po::variables_map> parse(const std::string& command, const std::string& usage,
                                       po::options_description options, const Words& words,
                                       const char* positional) {
  options.add_options()("help,h", "show this help");
  const std::string hint = fmt::format("see 'datatool {} --help'", command);
  po::variables_map values;
  try {
    po::positional_options_description rest;
    if (positional) rest.add(positional, -1);
    po::store(po::command_line_parser(words)
                  .options(options)
                  .positional(rest)
                  .style(po::command_line_style::unix_style ^ po::command_line_style::allow_guessing)
                  .run(),
              values);
    if (values.count("help")) {
      fmt::print("usage: datatool {} {}\n\n", command, usage);
      std::string text = (std::ostringstream() << options).str();
      fmt::print("{}", text);
      return std::nullopt;
    }
    po::notify(values);
  } catch (const po::unknown_option& error) {
    const std::string given = error.get_option_name();
    std::vector<std::string> known;
    for (const auto& option : options.options()) known.push_back("--" + option->long_name());
    const std::string near = nearest(given, known);
    throw UserError(fmt::format("unknown option '{}' of 'datatool {}'", given, command),
                    near.empty() ? "" : fmt::format("did you mean '{}'?", near), hint);
  } catch (const po::error& error) {
    throw UserError(fmt::format("'datatool {}': {}", command, error.what()), "", hint);
  }
  return values;
}

void add_output_options(po::options_description& options) {
  options.add_options()("out", po::value<std::string>()->required()->value_name("FILE"),
                        "HDF5 file to write")("compress", po::bool_switch(),
                                              "deflate in chunks, with checksums; slower to read than plain")(
      "seed", po::value<uint64_t>()->default_value(1)->value_name("N"), "of the shuffle on writing")(
      "force", po::bool_switch(), "replace FILE where it exists");
}

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (comma == at)
      throw UserError(fmt::format("class names '{}' have an empty name", list), "", "write A,B,C");
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

std::string made_by(const std::string& command, const Words& words) {
  std::string text = "datatool " + command;
  for (const std::string& word : words) {
    if (word == "--force") continue;
    text += word.find_first_of(" \t'\"") == std::string::npos ? " " + word : fmt::format(" \"{}\"", word);
  }
  return text;
}

}  // namespace lockstep::datatool
