// datatool pack-idx: MNIST, Fashion-MNIST, EMNIST, ...
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "command.h"
#include "core/error.h"
#include "data/idx.h"
#include "pack.h"

namespace lockstep::datatool {

static void run(const Words& words) {
  namespace po = boost::program_options;
  po::options_description options("options");
  options.add_options()("images", po::value<std::string>()->required()->value_name("FILE"),
                        "IDX file of images, plain or .gz")(
      "labels", po::value<std::string>()->required()->value_name("FILE"), "IDX file of labels, plain or .gz")(
      "class-names", po::value<std::string>()->value_name("A,B,..."),
      "names of the classes; default: 0,1,...");
  add_output_options(options);
  const auto values = parse("pack-idx", "--images FILE --labels FILE --out FILE [OPTIONS]", options, words);
  if (!values) return;

  const data::IdxPair input =
      data::read_idx_pair((*values)["images"].as<std::string>(), (*values)["labels"].as<std::string>());
  const uint8_t* labels = input.labels.elements();
  data::WriterOptions writer{
      .num_samples = input.num_samples, .image = input.image, .made_by = made_by("pack-idx", words)};
  if (values->count("class-names"))
    writer.class_names = split_names((*values)["class-names"].as<std::string>());
  else
    for (int c = 0; c <= *std::max_element(labels, labels + input.num_samples); ++c)
      writer.class_names.push_back(std::to_string(c));
  const size_t bytes = static_cast<size_t>(input.image.bytes());
  pack(
      *values, writer,
      [&](uint64_t sample, uint8_t* out) {
        std::memcpy(out, input.images.elements() + sample * bytes, bytes);
      },
      [&](uint64_t sample) { return labels[sample]; });
}

Command pack_idx() {
  return {"pack-idx", "IDX files (MNIST, Fashion-MNIST, EMNIST), plain or .gz, to a data file", run};
}

}  // namespace lockstep::datatool
