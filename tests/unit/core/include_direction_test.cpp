// Includes point one way: app -> train -> {data, checkpoint, monitor, models} -> comm -> device -> nn ->
// core. Headers of libraries that are slow to compile stay inside the room that needs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Sources = std::map<std::string, std::string>;  ///< "comm/world.h" -> content

/// What each room may include besides itself.
const std::map<std::string, Strings> kMayInclude = {
    {"core", {}},
    {"nn", {"core"}},
    {"models", {"nn", "core"}},
    {"device", {"nn", "core"}},
    {"comm", {"device", "nn", "core"}},
    {"data", {"comm", "device", "nn", "core"}},
    {"checkpoint", {"comm", "device", "nn", "core"}},
    {"monitor", {"comm", "device", "nn", "core"}},
    {"train", {"data", "checkpoint", "monitor", "models", "comm", "device", "nn", "core"}},
    {"app", {"train", "data", "checkpoint", "monitor", "models", "comm", "device", "nn", "core"}},
    {"data_tools", {"data", "checkpoint", "core"}},
};
const Strings kHeavy = {"mpi.h", "hdf5.h", "nlohmann/", "boost/"};

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

Strings includes(const std::string& text) {
  static const std::regex kInclude(R"re((?:^|\n)\s*#\s*include\s*[<"]([^>"]+)[>"])re");
  Strings found;
  for (std::sregex_iterator at(text.begin(), text.end(), kInclude), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

/// Whether `path`, or one of our headers that it includes, includes a heavy header.
bool heavy(const std::string& path, const Sources& sources) {
  const auto starts = [&](const std::string& prefix) { return path.starts_with(prefix); };
  if (std::ranges::any_of(kHeavy, starts)) return true;
  const auto source = sources.find(path);
  if (source == sources.end()) return false;
  const Strings below = includes(source->second);
  return std::ranges::any_of(below, [&](const std::string& p) { return p != path && heavy(p, sources); });
}

Strings violations(const Sources& sources) {
  Strings found;
  for (const auto& [file, text] : sources) {
    const std::string room = room_of(file);
    for (const std::string& path : includes(text)) {
      const std::string to = room_of(path);
      if (to == room || !kMayInclude.contains(to) || to == path) continue;
      if (std::ranges::count(kMayInclude.at(room), to) == 0)
        found.push_back(file + " includes " + path + ", but " + room + " is below or beside " + to);
      else if (heavy(path, sources))
        found.push_back(file + " includes " + path + ", which brings in a heavy header");
    }
  }
  return found;
}

void read(const fs::path& folder, const fs::path& base, Sources& sources) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu") continue;
    std::ifstream in(entry.path());
    sources[fs::relative(entry.path(), base).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
}

Sources read_tree() {
  const fs::path top = LOCKSTEP_SOURCE_DIR;
  Sources sources;
  read(top / "src", top / "src", sources);
  read(top / "data_tools", top, sources);
  return sources;
}

TEST(IncludeDirection, EveryIncludePointsDown) {
  const Sources sources = read_tree();
  EXPECT_GT(sources.size(), 20u) << "the check looked at too few files to mean anything";
  EXPECT_THAT(violations(sources), testing::IsEmpty());
}

TEST(IncludeDirection, EveryRoomHasItsRules) {
  for (const auto& entry : fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "src")) {
    const std::string room = entry.path().filename().string();
    EXPECT_TRUE(!entry.is_directory() || kMayInclude.contains(room)) << room;
  }
}

TEST(IncludeDirection, UpwardAndSidewaysIncludesAreFound) {
  EXPECT_THAT(violations({{"core/a.cpp", "#include \"nn/graph.h\"\n"}}), testing::SizeIs(1));
  EXPECT_THAT(violations({{"data/a.cpp", "\n # include \"models/registry.h\"\n"}}), testing::SizeIs(1));
  EXPECT_THAT(violations({{"models/a.cpp", "#include \"device/device.h\"\n"}}), testing::SizeIs(1));
  EXPECT_THAT(violations({{"train/a.cpp", "#include <vector>\n#include \"comm/world.h\"\n"}}),
              testing::IsEmpty());
}

TEST(IncludeDirection, HeavyHeadersMayNotLeaveTheirRoom) {
  const Sources room = {{"comm/mpi.h", "#include <mpi.h>\n"},
                        {"comm/ring.h", "#include \"comm/mpi.h\"\n"},
                        {"comm/ring.cpp", "#include \"comm/ring.h\"\n"}};
  EXPECT_THAT(violations(room), testing::IsEmpty());
  Sources outside = room;
  outside["train/a.cpp"] = "#include \"comm/ring.h\"\n";
  EXPECT_THAT(violations(outside), testing::SizeIs(1));
}

}  // namespace
}  // namespace lockstep
