// What the subcommands of datatool share: the table's row, and parsing of their options.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::datatool {

using Words = std::vector<std::string>;

struct Command {
  std::string name, summary;
  std::function<void(const Words& words)> run;  ///< the words after the command; throws UserError
};

Command pack_idx();
Command pack_cifar();
Command generate();
Command info();
Command verify();

/// Reads `words` by `options`, --help added. nullopt after --help, which has been printed. `positional` is
/// the option that words without a name go to. Throws UserError: unknown option (the nearest is suggested),
/// bad value, missing option.
std::optional<boost::program_options::variables_map> parse(
    const std::string& command, const std::string& usage, boost::program_options::options_description options,
    const Words& words, const char* positional = nullptr);

/// The options of every command that writes a file: --out, --compress, --seed, --force.
void add_output_options(boost::program_options::options_description& options);

/// "A,B,C" in parts.
std::vector<std::string> split_names(const std::string& list);

/// How a file was made, for its made_by attribute: the command line but for --force, which is no part of the
/// content.
std::string made_by(const std::string& command, const Words& words);

}  // namespace lockstep::datatool
