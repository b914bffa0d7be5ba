#include "nn/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

namespace lockstep::nn {

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, size_t alignment) {
  auto rounded = [&](size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());

  std::map<int, int64_t> change;
  for (const Lifetime& l : lifetimes) {
    change[l.first] += static_cast<int64_t>(rounded(l.bytes));
    change[l.last + 1] -= static_cast<int64_t>(rounded(l.bytes));
  }
  int64_t alive = 0;
  for (auto [time, delta] : change) {
    alive += delta;
    plan.lower_bound = std::max(plan.lower_bound, static_cast<size_t>(alive));
  }

  std::vector<size_t> by_size(lifetimes.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<size_t> placed;  // sorted by offset
  for (size_t i : by_size) {
    const size_t need = rounded(lifetimes[i].bytes);
    size_t at = 0, best = SIZE_MAX, best_hole = SIZE_MAX;
    for (size_t j : placed) {
      if (lifetimes[j].last < lifetimes[i].first || lifetimes[i].last < lifetimes[j].first) continue;
      if (plan.offsets[j] > at) {
        size_t hole = plan.offsets[j] - at;
        if (hole >= need && hole < best_hole) best = at, best_hole = hole;
      }
      at = std::max(at, plan.offsets[j] + rounded(lifetimes[j].bytes));
    }
    plan.offsets[i] = best == SIZE_MAX ? at : best;
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + need);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }
  return plan;
}

}  // namespace lockstep::nn
