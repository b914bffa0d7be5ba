#include "pack.h"

#include <fmt/format.h>

#include "core/progress.h"
#include "core/text.h"
#include "data/classification_set.h"
#include "data/posix_file.h"

namespace lockstep::datatool {

void pack(const boost::program_options::variables_map& values, data::WriterOptions options,
          const std::function<void(uint64_t, uint8_t*)>& image,
          const std::function<int64_t(uint64_t)>& label) {
  const std::string out = values["out"].as<std::string>();
  options.compress = values["compress"].as<bool>();
  options.shuffle_seed = values["seed"].as<uint64_t>();
  options.if_exists = if_exists(values);
  data::ClassificationWriter writer(out, options);
  std::vector<uint8_t> buffer(static_cast<size_t>(options.image.bytes()));
  const uint64_t n = static_cast<uint64_t>(options.num_samples);
  Progress progress("packing", n, "samples");
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t sample = writer.source_row(i);
    image(sample, buffer.data());
    writer.append(buffer.data(), label(sample));
    progress.advance(1);
  }
  writer.commit();
  progress.finish();
  print_written(out);
}

data::IfExists if_exists(const boost::program_options::variables_map& values) {
  return values["force"].as<bool>() ? data::IfExists::replace : data::IfExists::refuse;
}

void print_written(const std::string& path) {
  const data::ClassificationSet set(path);
  fmt::print("'{}': {} samples of {} x {} x {}, {} classes, {}\n", path, with_commas(set.num_samples()),
             set.height(), set.width(), set.channels(), set.num_classes(),
             human_bytes(data::PosixFile(path).size()));
}

}  // namespace lockstep::datatool
