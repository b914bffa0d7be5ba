// datatool verify: finds damage in a data file.
#include "data/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace lockstep::datatool {

static void run(const Words& words) {
  namespace po = boost::program_options;
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required()->value_name("FILE"),
                        "HDF5 file to check");
  const auto values = parse("verify", "FILE", options, words, "file");
  if (!values) return;
  const std::string path = (*values)["file"].as<std::string>();
  const data::ClassificationSet set(path);
  constexpr size_t kLimit = 20;
  Progress progress("verifying", static_cast<uint64_t>(set.num_samples()), "samples");
  const std::vector<std::string> damage =
      data::find_damage(set, kLimit, [&](uint64_t rows) { progress.advance(rows); });
  progress.finish();
  if (!damage.empty())
    throw UserError(
        fmt::format("file '{}' is damaged{}", path,
                    damage.size() == kLimit ? fmt::format(" (the first '{}' places)", kLimit) : ""),
        fmt::format("{}", fmt::join(damage, "\n  ")), "copy or make the file again");
  fmt::print("'{}': {} samples are whole, labels are in range, content {}\n", path,
             with_commas(set.num_samples()), set.content_hash());
}

Command verify() { return {"verify", "check content hash, checksums and labels of a data file", run}; }

}  // namespace lockstep::datatool
