#include "app/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "app/check.h"
#include "app/options.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"

namespace lockstep::app {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

constexpr uintmax_t kLargestJobFile = 1 << 20;
constexpr const char* kByteOrderMark = "\xef\xbb\xbf";

/// Collects what the four sources say, and every mistake in it.
class Parser {
 public:
  Parser() : options_(options(invocation_.job)) {
    for (const Option& o : options_) invocation_.origin[o.key] = kDefaultOrigin;
  }

  void command_line(int argc, const char* const* argv);
  void environment(const char* const* env);
  void job_file(const std::string& quickstart);  ///< after the two others, which decide on the quickstart
  /// Applies what was read, in rising order of precedence, and checks the outcome.
  Invocation finish();

 private:
  struct Given {
    std::string key, value, place;
    std::string folder = "";  ///< that relative input paths start from; empty: the working directory
  };
  void problem(const std::string& place, const std::string& text) {
    problems_.push_back(printable(place + ": " + text));
  }
  void read_ini(std::istream& in, const std::string& name, const std::string& folder);
  void apply(const Given& given);
  void unknown(const Given& given);
  std::string nearest_key(const std::string& key) const;

  Invocation invocation_;
  std::vector<Option> options_;
  std::vector<Given> from_file_, from_environment_, from_command_line_;
  std::vector<std::string> problems_;
  bool help_ = false;
  std::string command_;
};

/// Every option takes a value, so Boost is asked for bare tokens: `--key=value`, or `--key` and then, as a
/// positional token, its value. Negative numbers stay values because short options are off.
void Parser::command_line(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i] == std::string("-h") ? "--help" : argv[i];
    const bool emptied = word.starts_with("--") && word.ends_with("=");  // Boost refuses "--key="
    if (emptied) word.pop_back();
    words.push_back(word);
    if (emptied) words.emplace_back();
  }
  const po::options_description none;
  using namespace po::command_line_style;
  const po::parsed_options parsed = po::command_line_parser(words)
                                        .options(none)
                                        .allow_unregistered()
                                        .style(allow_long | long_allow_adjacent | long_allow_next)
                                        .run();
  for (size_t i = 0; i < parsed.options.size(); ++i) {
    const auto& token = parsed.options[i];
    std::string key = token.string_key;
    if (key.empty()) {
      const std::string& word = token.value.empty() ? token.original_tokens.front() : token.value.front();
      if (i == 0)
        command_ = word;
      else
        problem(kCommandLine,
                fmt::format("'{}' belongs to no option; an option is --section.key VALUE", word));
      continue;
    }
    if (key == "help") {
      help_ = true;
      continue;
    }
    std::string value;
    if (!token.value.empty()) {
      value = token.value.front();
    } else if (i + 1 < parsed.options.size() && parsed.options[i + 1].string_key.empty()) {
      value = parsed.options[++i].original_tokens.front();
    } else {
      problem(kCommandLine, fmt::format("'--{}' has no value", key));
      continue;
    }
    for (const auto& [name, full] : short_forms())
      if (key == name) key = full;
    if (key == "job")
      invocation_.job_file = value;
    else
      from_command_line_.push_back({key, value, kCommandLine});
  }
  if (command_.empty()) return;
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  if (std::ranges::find(names, command_) == names.end()) {
    const std::string near = nearest(command_, names);
    problem(kCommandLine,
            fmt::format("'{}' is no command{}", command_,
                        near.empty() ? "; see 'trainer --help'" : "; did you mean '" + near + "'?"));
  } else {
    invocation_.command = command_;
  }
}

void Parser::job_file(const std::string& quickstart) {
  const std::string& path = invocation_.job_file;
  if (path.empty()) {
    auto own_data = [](const Given& g) { return g.key == "data.train" && !g.value.empty(); };
    invocation_.built_in = trains(invocation_) && std::ranges::none_of(from_environment_, own_data) &&
                           std::ranges::none_of(from_command_line_, own_data);
    if (!invocation_.built_in) return;
    std::istringstream in(quickstart);
    read_ini(in, "built-in job", "");
    return;
  }
  std::error_code unknown;
  const fs::file_status status =
      fs::status(path, unknown);  // before opening it: a pipe would wait for its writer
  const bool usable =
      !fs::exists(status) || (fs::is_regular_file(status) && fs::file_size(path, unknown) <= kLargestJobFile);
  errno = 0;
  std::ifstream in(usable ? path : std::string());
  if (fs::is_directory(status))
    problem(kCommandLine, fmt::format("job file '{}' cannot be read: it is a folder", path));
  else if (!usable)
    problem(kCommandLine, fmt::format("job file '{}' cannot be read: it is no file of at most '{}' bytes",
                                      path, kLargestJobFile));
  else if (!in && errno == ENOENT)
    problem(kCommandLine, fmt::format("job file '{}' does not exist", path));
  else if (!in)
    problem(kCommandLine, fmt::format("job file '{}' cannot be read: {}", path, std::strerror(errno)));
  else
    read_ini(in, path, fs::absolute(path).parent_path().string());
}

/// Boost parses the lines one by one, each behind its section's, so that every mistake is found and has its
/// line.
void Parser::read_ini(std::istream& in, const std::string& name, const std::string& folder) {
  const po::options_description none;
  std::string line, section;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string place = fmt::format("{}:{}", name, number);
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, std::string(kByteOrderMark).size());
    std::istringstream one(section + "\n" + line);
    try {
      const po::parsed_options parsed = po::parse_config_file(one, none, true);
      for (const auto& o : parsed.options)
        from_file_.push_back({o.string_key, o.value.front(), place, folder});
      if (size_t at = line.find_first_not_of(" \t"); at != std::string::npos && line[at] == '[')
        section = line;
    } catch (const po::error&) {
      problem(place, fmt::format("'{}' is neither '[section]' nor 'key = value'", line));
    }
  }
  if (in.bad()) problem(name, "the file cannot be read to its end");
}

std::string environment_name(std::string key) {
  for (char& c : key) c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "LOCKSTEP_" + key;
}

void Parser::environment(const char* const* env) {
  std::vector<std::string> names;
  for (const Option& o : options_) names.push_back(environment_name(o.key));
  for (; env && *env; ++env) {
    const std::string entry = *env;
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with("LOCKSTEP_") || name == "LOCKSTEP_TRAINER") continue;  // that one is the scripts'
    const auto known = std::ranges::find(names, name);
    if (known == names.end()) {
      const std::string near = nearest(name, names);
      problem(name, "this variable sets no option" + (near.empty() ? "" : "; did you mean '" + near + "'?"));
    } else {
      from_environment_.push_back({options_[known - names.begin()].key, entry.substr(name.size() + 1), name});
    }
  }
}

/// The same name in another section ("optim.seed" -> "train.seed"), else the key with the fewest edits.
std::string Parser::nearest_key(const std::string& key) const {
  const std::string name = key.substr(key.rfind('.') + 1);
  std::vector<std::string> all, same_name;
  for (const Option& o : options_) {
    all.push_back(o.key);
    if (o.name() == name) same_name.push_back(o.key);
  }
  if (same_name.size() == 1) return same_name.front();
  for (const auto& [short_name, full] : short_forms()) all.push_back(short_name);
  all.insert(all.end(), {"job", "help"});
  return nearest(key, same_name.empty() ? all : same_name);
}

void Parser::unknown(const Given& given) {
  const std::string near = nearest_key(given.key);
  problem(given.place,
          fmt::format("unknown option '{}'{}", given.key,
                      near.empty() ? "; see 'trainer --help'" : "; did you mean '" + near + "'?"));
}

void Parser::apply(const Given& given) {
  const auto option = std::ranges::find(options_, given.key, &Option::key);
  if (option == options_.end()) return unknown(given);
  std::string value = given.value;
  if (value.empty()) {  // unset
    Job defaults;
    const std::vector<Option> fresh = options(defaults);
    option->set(fresh[option - options_.begin()].get());
    invocation_.origin[given.key] = kDefaultOrigin;
    return;
  }
  if (option->input_path && !value.empty() &&
      !(given.key == "checkpoint.resume" && (value == "never" || value == "auto")))
    value = fs::absolute(fs::path(given.folder) / value).lexically_normal().string();
  if (std::string wrong = option->set(value); !wrong.empty())
    problem(given.place, fmt::format("{} '{}' {}", given.key, given.value, wrong));
  invocation_.origin[given.key] = given.place;
}

Invocation Parser::finish() {
  if (help_ && (command_.empty() || command_ == invocation_.command)) {
    invocation_.help = help_text(command_);
    return std::move(invocation_);
  }
  for (const auto* source : {&from_file_, &from_environment_, &from_command_line_}) {
    std::set<std::string> seen;
    for (const Given& given : *source) {
      if (!seen.insert(given.key).second)
        invocation_.warnings.push_back(
            fmt::format("{}: {} is given twice; '{}' counts", given.place, given.key, given.value));
      apply(given);
    }
  }
  if (invocation_.job.train.steps > 0 && invocation_.origin["train.epochs"] == kDefaultOrigin) {
    invocation_.job.train.epochs = 0;
    invocation_.origin["train.epochs"] = "because train.steps is set";
  }
  check(invocation_, problems_);
  if (!problems_.empty()) {
    std::string lines;
    for (const std::string& p : problems_) lines += (lines.empty() ? "" : "\n  ") + p;
    throw UserError(problems_.size() == 1
                        ? "the job cannot run as given"
                        : fmt::format("the job cannot run as given: '{}' problems", problems_.size()),
                    lines, fmt::format("see 'trainer {} --help'", invocation_.command));
  }
  return std::move(invocation_);
}

}  // namespace

Invocation parse(int argc, const char* const* argv, const char* const* env, const std::string& quickstart) {
  Parser parser;
  parser.command_line(argc, argv);
  parser.environment(env);
  parser.job_file(quickstart);
  return parser.finish();
}

bool trains(const Invocation& invocation) { return invocation.command != "evaluate"; }

bool typed(const Invocation& invocation, const std::string& key) {
  const std::string& origin = invocation.origin.at(key);
  return origin == kCommandLine || origin.starts_with("LOCKSTEP_");
}

std::vector<Setting> settings(const Invocation& invocation) {
  Job job = invocation.job;
  std::vector<Setting> all;
  for (const Option& o : options(job)) all.push_back({o.key, o.get(), invocation.origin.at(o.key)});
  return all;
}

std::string to_ini(const Job& job) {
  Job copy = job;
  std::string text, section;
  for (const Option& o : options(copy)) {
    if (o.section() != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", o.section());
      section = o.section();
    }
    text += fmt::format("{} = {}\n", o.name(), o.get());
  }
  return text;
}

std::map<std::string, std::string> values_of_ini(const std::string& ini) {
  std::map<std::string, std::string> values;
  std::istringstream lines(ini);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const size_t equals = line.find(" =");
    if (equals != std::string::npos)
      values[section + "." + line.substr(0, equals)] = line.substr(std::min(equals + 3, line.size()));
  }
  return values;
}

uint64_t job_hash(const Job& job) {
  Job copy = job;
  std::string text;
  for (const Option& o : options(copy))
    if (o.identity) text += o.key + "=" + o.get() + "\n";
  return xxh3(std::as_bytes(std::span(text)));
}

}  // namespace lockstep::app
