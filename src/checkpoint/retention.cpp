#include "checkpoint/retention.h"

#include <cmath>
#include <optional>
#include <set>

#include "checkpoint/file.h"
#include "checkpoint/load.h"
#include "core/error.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

namespace {

struct Candidate {
  Entry entry;
  bool whole = false;  ///< as far as can be seen without reading tensors
  std::optional<Metric> metric;
};

Candidate inspect(Entry entry) {
  try {
    State state = load_checkpoint(entry.path, Verify::sizes).state;
    return {std::move(entry), true, state.metric};
  } catch (const UserError&) {
    return {std::move(entry), false, std::nullopt};
  }
}

const Candidate* best(const std::vector<Candidate>& newest_first, const std::string& metric) {
  const Candidate* best = nullptr;
  for (const Candidate& c : newest_first) {
    if (!c.metric || c.metric->name != metric || std::isnan(c.metric->value)) continue;
    const bool as_good = !best || (c.metric->higher_is_better ? c.metric->value >= best->metric->value
                                                              : c.metric->value <= best->metric->value);
    if (as_good) best = &c;
  }
  return best;
}

std::vector<Candidate> whole_and_damaged(const fs::path& directory) {
  std::vector<Candidate> candidates;
  for (Entry& entry : list_entries(directory))
    if (entry.suffix.empty()) candidates.push_back(inspect(std::move(entry)));
  return candidates;
}

}  // namespace

std::optional<Metric> best_metric(const fs::path& directory, const std::string& name) {
  const std::vector<Candidate> candidates = whole_and_damaged(directory);
  const Candidate* found = best(candidates, name);
  return found ? found->metric : std::nullopt;
}

std::vector<std::string> prune(const fs::path& directory, const Retention& retention,
                               const fs::path& committed, const FaultPoint& fault_point) {
  if (retention.keep <= 0) return {};
  const std::vector<Candidate> candidates = whole_and_damaged(directory);

  std::set<fs::path> kept;
  int64_t oldest_kept = INT64_MAX;
  auto keep = [&](const Candidate& c) {
    kept.insert(c.entry.path.filename());
    oldest_kept = std::min(oldest_kept, c.entry.step);
  };
  for (const Candidate& c : candidates)
    if (c.entry.path.filename() == committed.filename()) keep(c);
  for (const Candidate& c : candidates)
    if (c.whole && kept.size() < static_cast<size_t>(retention.keep)) keep(c);
  if (!retention.best.empty())
    if (const Candidate* c = best(candidates, retention.best)) kept.insert(c->entry.path.filename());

  std::vector<std::string> deleted;
  for (const Candidate& c : candidates) {
    if (kept.contains(c.entry.path.filename())) continue;
    if (!c.whole && c.entry.step > oldest_kept) continue;
    fs::path trash = c.entry.path;
    trash += kTrash;
    rename_path(c.entry.path, trash);
    if (fault_point) fault_point("trashed");
    remove_directory(trash);
    if (fault_point) fault_point("deleted");
    deleted.push_back(c.entry.path.filename().string());
  }
  return deleted;
}

}  // namespace lockstep::checkpoint
