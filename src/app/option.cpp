#include "app/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace lockstep::app {
namespace {

template <class T>
std::string print(T value) {
  return fmt::format("{}", value);
}

template <class T>
std::string read(const std::string& text, const Range& range, T& out) {
  T value{};
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  constexpr bool whole = std::is_integral_v<T>;
  if (error == std::errc::result_out_of_range) return "is out of range: " + range.text();
  if (error != std::errc() || stop != end) {
    // from_chars takes no minus for unsigned types; a number below the range deserves to be called so.
    double number = 0;
    auto [at, bad] = std::from_chars(text.data(), end, number);
    if (whole && bad == std::errc() && at == end && number == std::floor(number) && !range.holds(number))
      return "is out of range: " + range.text();
    return whole ? "is not a whole number" : "is not a number";
  }
  if (!std::isfinite(static_cast<double>(value))) return "is not a finite number";
  if (!range.holds(static_cast<double>(value))) return "is out of range: " + range.text();
  out = value;
  return "";
}

template <class T>
Option make_number(std::string key, std::string unit, T& field, Range range, std::string help) {
  if constexpr (std::is_unsigned_v<T>) range.low = std::max(range.low, 0.0);
  Option o{.key = std::move(key), .unit = std::move(unit), .accepts = range.text(), .help = std::move(help)};
  o.set = [&field, range](const std::string& text) { return read(text, range, field); };
  o.get = [&field] { return print(field); };
  return o;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (char c : text + ",") {
    if (c == ',') {
      if (!part.empty()) parts.push_back(part);
      part.clear();
    } else if (c != ' ') {
      part += c;
    }
  }
  return parts;
}

template <class T>
Option make_number_list(std::string key, std::string unit, std::vector<T>& field, Range range,
                        std::string help) {
  Option o{.key = std::move(key),
           .unit = std::move(unit) + ",...",
           .accepts = "each " + range.text(),
           .help = std::move(help)};
  o.set = [&field, range](const std::string& text) {
    std::vector<T> values;
    for (const std::string& part : split(text)) {
      T value{};
      if (std::string wrong = read(part, range, value); !wrong.empty())
        return "holds '" + part + "', which " + wrong;
      values.push_back(value);
    }
    field = values;
    return std::string();
  };
  o.get = [&field] {
    std::vector<std::string> parts;
    for (T value : field) parts.push_back(print(value));
    return fmt::format("{}", fmt::join(parts, ","));
  };
  return o;
}

}  // namespace

bool Range::holds(double x) const {
  return (above_low ? x > low : x >= low) && (below_high ? x < high : x <= high);
}

std::string Range::text() const {
  const std::string lower = fmt::format("{} {}", above_low ? "more than" : "at least", low);
  const std::string upper = fmt::format("{} {}", below_high ? "less than" : "at most", high);
  if (std::isinf(low) && std::isinf(high)) return "any number";
  if (std::isinf(high)) return lower;
  return std::isinf(low) ? upper : lower + ", " + upper;
}

Option number(std::string key, std::string unit, int64_t& field, Range range, std::string help) {
  return make_number(std::move(key), std::move(unit), field, range, std::move(help));
}
Option number(std::string key, std::string unit, int& field, Range range, std::string help) {
  return make_number(std::move(key), std::move(unit), field, range, std::move(help));
}
Option number(std::string key, std::string unit, uint64_t& field, Range range, std::string help) {
  return make_number(std::move(key), std::move(unit), field, range, std::move(help));
}
Option number(std::string key, std::string unit, double& field, Range range, std::string help) {
  return make_number(std::move(key), std::move(unit), field, range, std::move(help));
}

Option number(std::string key, std::string unit, std::optional<double>& field, Range range,
              std::string help) {
  Option o{.key = std::move(key), .unit = std::move(unit), .accepts = range.text(), .help = std::move(help)};
  o.set = [&field, range](const std::string& text) {
    double value = 0;
    std::string wrong = text.empty() ? "" : read(text, range, value);
    if (wrong.empty()) field = text.empty() ? std::nullopt : std::optional(value);
    return wrong;
  };
  o.get = [&field] { return field ? print(*field) : ""; };
  return o;
}

Option flag(std::string key, bool& field, std::string help) {
  Option o{.key = std::move(key), .unit = "true|false", .accepts = "true or false", .help = std::move(help)};
  o.set = [&field](const std::string& text) {
    if (text == "on" || text == "true" || text == "yes" || text == "1")
      field = true;
    else if (text == "off" || text == "false" || text == "no" || text == "0")
      field = false;
    else
      return "is neither true nor false";
    return "";
  };
  o.get = [&field] { return field ? "true" : "false"; };
  return o;
}

Option text(std::string key, std::string unit, std::string& field, std::string help) {
  Option o{.key = std::move(key), .unit = std::move(unit), .help = std::move(help)};
  o.set = [&field](const std::string& text) {
    if (text.find_first_of("#\n\r") != std::string::npos)
      return "holds a '#' or a line break, which no job file can";
    field = text;
    return "";
  };
  o.get = [&field] { return field; };
  return o;
}

std::function<std::string(const std::string&)> word_check(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) -> std::string {
    for (const std::string& w : words)
      if (w == text) return "";
    std::string near = nearest(text, words);
    return fmt::format("is none of {}{}", fmt::join(words, ", "),
                       near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  };
}

Option word(std::string key, std::string& field, std::vector<std::string> words, std::string help) {
  Option o{.key = std::move(key),
           .unit = fmt::format("{}", fmt::join(words, "|")),
           .accepts = fmt::format("one of {}", fmt::join(words, ", ")),
           .help = std::move(help)};
  o.set = [&field, check = word_check(std::move(words))](const std::string& text) {
    std::string wrong = check(text);
    if (wrong.empty()) field = text;
    return wrong;
  };
  o.get = [&field] { return field; };
  return o;
}

Option word_list(std::string key, std::vector<std::string>& field, std::vector<std::string> words,
                 std::string help) {
  Option o{.key = std::move(key),
           .unit = "NAME,...",
           .accepts = fmt::format("any of {}", fmt::join(words, ", ")),
           .help = std::move(help)};
  o.set = [&field, check = word_check(std::move(words))](const std::string& text) {
    std::vector<std::string> parts = split(text);
    for (const std::string& part : parts)
      if (std::string wrong = check(part); !wrong.empty()) return "holds '" + part + "', which " + wrong;
    field = parts;
    return std::string();
  };
  o.get = [&field] { return fmt::format("{}", fmt::join(field, ",")); };
  return o;
}

Option number_list(std::string key, std::string unit, std::vector<int>& field, Range range,
                   std::string help) {
  return make_number_list(std::move(key), std::move(unit), field, range, std::move(help));
}
Option number_list(std::string key, std::string unit, std::vector<double>& field, Range range,
                   std::string help) {
  return make_number_list(std::move(key), std::move(unit), field, range, std::move(help));
}
Option number_list(std::string key, std::string unit, std::vector<float>& field, Range range,
                   std::string help) {
  return make_number_list(std::move(key), std::move(unit), field, range, std::move(help));
}

}  // namespace lockstep::app
