// The loop that all pack commands share.
#pragma once

#include <boost/program_options/variables_map.hpp>
#include <functional>
#include <string>

#include "command.h"
#include "data/writer.h"

namespace lockstep::datatool {

/// Writes the samples in the writer's order with a progress bar, and says what was written. `image` fills a
/// buffer of options.image.bytes(). Output options are taken from `values`.
void pack(const boost::program_options::variables_map& values, data::WriterOptions options,
          const std::function<void(uint64_t sample, uint8_t* out)>& image,
          const std::function<int64_t(uint64_t sample)>& label);

/// What --force says.
data::IfExists if_exists(const boost::program_options::variables_map& values);

/// "'FILE': 60,000 samples of 28 x 28 x 1, 10 classes, 45.3 MiB" on standard output.
void print_written(const std::string& path);

}  // namespace lockstep::datatool
