// docs/jobs.md and the parser know the same options, with the same defaults, values and ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "app/options.h"

namespace lockstep::app {
namespace {

using Row = std::vector<std::string>;

/// The cells of a Markdown table's row, without surrounding blanks; "\|" stands for a bar inside a cell.
Row cells(const std::string& line) {
  Row row;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '|' && line[i - 1] != '\\') {
      const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
      row.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
      cell.clear();
    } else if (line[i] != '\\' && line[i] != '`') {
      cell += line[i];
    }
  }
  return row;
}

/// By key: default, value and range, from the tables with five columns below the section's heading.
std::map<std::string, Row> documented() {
  std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/jobs.md");
  std::map<std::string, Row> found;
  std::string section;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("| `" + section + ".")) continue;
    const Row row = cells(line);
    EXPECT_EQ(row.size(), 5u) << line;
    EXPECT_FALSE(found.contains(row[0])) << row[0] << " has two rows";
    EXPECT_NE(row.back(), "") << row[0] << " has no meaning";
    found[row[0]] = {row[1], row[2], row[3]};
  }
  return found;
}

std::map<std::string, Row> known() {
  Job defaults;
  std::map<std::string, Row> found;
  for (const Option& o : options(defaults)) {
    const bool words = o.unit.find('|') != std::string::npos;
    found[o.key] = {o.get(), o.unit, words ? "" : o.accepts};
  }
  return found;
}

TEST(JobsPage, DocumentsEveryOptionAsItIs) {
  const auto page = documented();
  for (const auto& [key, facts] : known()) {
    ASSERT_TRUE(page.contains(key)) << key << " is missing in docs/jobs.md";
    EXPECT_EQ(page.at(key), facts) << key;
  }
}

TEST(JobsPage, DocumentsNothingElse) {
  const auto parser = known();
  for (const auto& [key, facts] : documented())
    EXPECT_TRUE(parser.contains(key)) << key << " is in docs/jobs.md, but no option";
}

TEST(JobsPage, NamesEveryShortFormAndCommand) {
  std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/jobs.md");
  const std::string page(std::istreambuf_iterator<char>(in), {});
  for (const auto& [name, key] : short_forms()) EXPECT_THAT(page, testing::HasSubstr("`--" + name + "`"));
  for (const Command& command : commands())
    EXPECT_THAT(page, testing::HasSubstr("| `" + command.name + "` |"));
}

}  // namespace
}  // namespace lockstep::app
