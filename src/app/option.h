// One thing that a user may set, and the small builders that bind it to a field of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::app {

/// The numbers an option takes.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool below_high = false;  ///< high itself is out
  bool above_low = false;   ///< low itself is out
  bool holds(double x) const;
  std::string text() const;  ///< "at least 0", "at least 0, less than 1"
};
inline Range at_least(double low) { return {.low = low}; }
inline Range more_than(double low) { return {.low = low, .above_low = true}; }
inline Range from_to(double low, double high) { return {.low = low, .high = high}; }
inline Range from_to_below(double low, double high) { return {.low = low, .high = high, .below_high = true}; }

/// Valid as long as the Job whose field it is bound to.
struct Option {
  std::string key;      ///< "train.epochs"
  std::string unit;     ///< "epochs", "s", "FILE", "name": what help shows in place of the value
  std::string accepts;  ///< range or words, for messages and help; may be empty
  std::string help;
  std::function<std::string(const std::string&)> set;  ///< "" when taken, else what is wrong with the text
  std::function<std::string()> get;                    ///< text that set() takes back to the same value
  bool identity = true;                                ///< part of job_hash
  bool input_path = false;  ///< a file to read: relative to the job file that names it

  std::string section() const { return key.substr(0, key.find('.')); }
  std::string name() const { return key.substr(key.find('.') + 1); }
};

Option number(std::string key, std::string unit, int64_t& field, Range range, std::string help);
Option number(std::string key, std::string unit, int& field, Range range, std::string help);
Option number(std::string key, std::string unit, uint64_t& field, Range range, std::string help);
Option number(std::string key, std::string unit, double& field, Range range, std::string help);
/// No value ("") leaves the choice to the code.
Option number(std::string key, std::string unit, std::optional<double>& field, Range range, std::string help);
Option flag(std::string key, bool& field, std::string help);
Option text(std::string key, std::string unit, std::string& field, std::string help);
/// One of `words`; a near miss is answered with a suggestion.
Option word(std::string key, std::string& field, std::vector<std::string> words, std::string help);
Option word_list(std::string key, std::vector<std::string>& field, std::vector<std::string> words,
                 std::string help);
Option number_list(std::string key, std::string unit, std::vector<int>& field, Range range, std::string help);
Option number_list(std::string key, std::string unit, std::vector<double>& field, Range range,
                   std::string help);
Option number_list(std::string key, std::string unit, std::vector<float>& field, Range range,
                   std::string help);

/// Says what is wrong with a text that is none of `words`; "" when it is one.
std::function<std::string(const std::string&)> word_check(std::vector<std::string> words);

/// One of the named values of an enum.
template <class Enum>
Option choice(std::string key, Enum& field, std::vector<std::pair<std::string, Enum>> values,
              std::string help) {
  std::vector<std::string> words;
  for (const auto& [name, value] : values) words.push_back(name);
  std::string scratch;
  Option option = word(std::move(key), scratch, words, std::move(help));
  option.set = [&field, values, check = word_check(words)](const std::string& given) {
    std::string wrong = check(given);
    for (const auto& [name, value] : values)
      if (name == given) field = value;
    return wrong;
  };
  option.get = [&field, values] {
    for (const auto& [name, value] : values)
      if (value == field) return name;
    return std::string();
  };
  return option;
}

}  // namespace lockstep::app
