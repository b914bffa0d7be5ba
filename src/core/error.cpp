#include "core/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {

static std::string join(const std::string& what, const std::string& why, const std::string& todo) {
  std::string text = what;
  for (const std::string* line : {&why, &todo})
    if (!line->empty()) text += "\n  " + *line;
  return text;
}

Error::Error(std::string what, std::string why, std::string todo)
    : std::runtime_error(join(what, why, todo)),
      what_(std::move(what)),
      why_(std::move(why)),
      todo_(std::move(todo)) {}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace lockstep
