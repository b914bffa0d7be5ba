// Aligned text tables and colour, as functions from values to strings.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::monitor {

enum class Style { plain, title, dim, good, warn, bad };
/// `text` in the style's ANSI colour, or as it is when `color` is false.
std::string styled(const std::string& text, Style style, bool color);

enum class ColorMode { automatic, always, never };
/// Whether to colour output to `fd`. `automatic`: a terminal, NO_COLOR unset or empty (https://no-color.org),
/// TERM not "dumb".
bool use_color(ColorMode mode, int fd);
bool use_color(ColorMode mode, bool terminal, const char* no_color, const char* term);

using Row = std::vector<std::string>;

/// A title, then rows whose columns are aligned and two blanks apart, indented by two. Cells that begin with
/// a digit in a column where all do are aligned right. Every line ends with a newline. `heads` may be empty.
std::string table(const std::string& title, const Row& heads, const std::vector<Row>& rows, bool color);

/// A table of "key  value".
std::string key_values(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows,
                       bool color);

}  // namespace lockstep::monitor
