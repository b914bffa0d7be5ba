// datatool info: what a data file holds.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "command.h"
#include "core/text.h"
#include "data/classification_set.h"
#include "data/hdf5_file.h"
#include "data/posix_file.h"

namespace lockstep::datatool {

static void print_row(const std::string& name, const std::string& value) {
  fmt::print("  {:<14}{}\n", name, value);
}

static void print_dataset(const data::Hdf5File& file, const std::string& name, int rank) {
  const data::Hdf5Dataset set = file.dataset(name, rank);
  print_row(name, fmt::format("{} {}", set.type().text(), set.shape().text()));
}

static void print_histogram(const data::ClassificationSet& set) {
  const std::vector<std::string>& names = set.class_names();
  std::map<size_t, int64_t> counts;  // not by class: without names, one damaged label makes billions of them
  for (size_t c = 0; c < names.size(); ++c) counts[c] = 0;
  for (int32_t label : set.labels()) ++counts[static_cast<size_t>(label)];
  size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  fmt::print("\nclasses\n  {:>6}  {:<{}}  {:>12}  {:>7}\n", "label", "name", width, "samples", "share");
  for (const auto& [c, count] : counts)
    fmt::print("  {:>6}  {:<{}}  {:>12}  {:>6.2f}%\n", c, c < names.size() ? names[c] : "", width,
               with_commas(count),
               100.0 * static_cast<double>(count) / static_cast<double>(set.num_samples()));
}

static void run(const Words& words) {
  namespace po = boost::program_options;
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required()->value_name("FILE"),
                        "HDF5 file to describe");
  const auto values = parse("info", "FILE", options, words, "file");
  if (!values) return;
  const std::string path = (*values)["file"].as<std::string>();
  const data::ClassificationSet set(path);
  const data::Hdf5File file(path);
  fmt::print("file\n");
  print_row("path", path);
  print_row("size", human_bytes(data::PosixFile(path).size()));
  print_dataset(file, "/images", 4);
  print_dataset(file, "/labels", 1);
  print_row("read", set.layout());
  fmt::print("\nattributes\n");
  for (const auto& [name, value] : file.attributes())
    print_row(name, value.size() <= 400 ? value : value.substr(0, 400) + " ...");
  print_histogram(set);
}

Command info() { return {"info", "attributes, shapes, layout and classes of a data file", run}; }

}  // namespace lockstep::datatool
