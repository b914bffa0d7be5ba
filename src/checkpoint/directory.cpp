#include "checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "checkpoint/file.h"
#include "checkpoint/load.h"
#include "core/error.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

std::string step_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

static bool parse_name(std::string_view name, Entry& entry) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), entry.step);
  if (error != std::errc() || entry.step < 0) return false;
  entry.suffix = name.substr(static_cast<size_t>(end - name.data()));
  return entry.suffix.empty() || entry.suffix == kPartial || entry.suffix == kReplaced ||
         entry.suffix == kTrash;
}

std::vector<Entry> list_entries(const fs::path& directory) {
  std::vector<Entry> entries;
  if (!fs::exists(status_of(directory))) return entries;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    Entry entry;
    if (!parse_name(at->path().filename().string(), entry)) continue;
    entry.path = at->path();
    entries.push_back(std::move(entry));
  }
  if (error) throw_file_error("read", directory, error.value());
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.step != b.step ? a.step > b.step : a.suffix < b.suffix;
  });
  return entries;
}

void remove_directory(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_file_error("remove", path, error.value());
}

static bool is_whole(const fs::path& checkpoint) {
  try {
    load_checkpoint(checkpoint);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

void clean_stale(const fs::path& directory) {
  for (const Entry& entry : list_entries(directory)) {
    if (entry.suffix.empty()) continue;
    const fs::path whole = directory / step_name(entry.step);
    if (entry.suffix != kReplaced || is_whole(whole)) {
      remove_directory(entry.path);
    } else if (!fs::exists(status_of(whole)) || is_whole(entry.path)) {
      remove_directory(whole);
      rename_path(entry.path, whole);
    }
  }
}

}  // namespace lockstep::checkpoint
