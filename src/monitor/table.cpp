#include "monitor/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/terminal.h"

namespace lockstep::monitor {

std::string styled(const std::string& text, Style style, bool color) {
  if (!color || style == Style::plain) return text;
  constexpr const char* codes[] = {"0", "1", "2", "32", "33", "31"};
  return fmt::format("\033[{}m{}\033[0m", codes[static_cast<int>(style)], text);
}

bool use_color(ColorMode mode, bool terminal, const char* no_color, const char* term) {
  if (mode != ColorMode::automatic) return mode == ColorMode::always;
  if (no_color && *no_color) return false;
  return terminal && !(term && std::strcmp(term, "dumb") == 0);
}

bool use_color(ColorMode mode, int fd) {
  return use_color(mode, on_terminal(fd), std::getenv("NO_COLOR"), std::getenv("TERM"));
}

static bool is_number(const std::string& cell) { return !cell.empty() && cell[0] >= '0' && cell[0] <= '9'; }

std::string table(const std::string& title, const Row& heads, const std::vector<Row>& rows, bool color) {
  std::vector<size_t> widths(heads.size());
  std::vector<bool> numbers(heads.size(), true);
  for (size_t c = 0; c < heads.size(); ++c) widths[c] = heads[c].size();
  for (const Row& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size()), numbers.resize(row.size(), true);
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
      numbers[c] = numbers[c] && is_number(row[c]);
    }
  }
  auto line = [&](const Row& row) {
    std::string text = " ";
    for (size_t c = 0; c < row.size(); ++c)
      text += numbers[c] ? fmt::format(" {:>{}} ", row[c], widths[c])
                         : fmt::format(" {:<{}} ", row[c], widths[c]);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string text = styled(title, Style::title, color) + "\n";
  if (!heads.empty()) text += styled(line(heads), Style::dim, color) + "\n";
  for (const Row& row : rows) text += line(row) + "\n";
  return text;
}

std::string key_values(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows,
                       bool color) {
  size_t width = 0;
  for (auto& [key, value] : rows) width = std::max(width, key.size());
  std::string text = styled(title, Style::title, color) + "\n";
  for (auto& [key, value] : rows)
    text += fmt::format("  {}  {}\n", styled(fmt::format("{:<{}}", key, width), Style::dim, color), value);
  return text;
}

}  // namespace lockstep::monitor
