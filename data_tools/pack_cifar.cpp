// datatool pack-cifar: the binary version of CIFAR-10 and CIFAR-100.
#include <fmt/format.h>

#include "command.h"
#include "core/error.h"
#include "data/cifar.h"
#include "pack.h"

namespace lockstep::datatool {

static data::CifarKind kind_of(const std::string& word) {
  if (word == "cifar10") return data::CifarKind::cifar10;
  if (word == "cifar100") return data::CifarKind::cifar100_fine;
  if (word == "cifar100-coarse") return data::CifarKind::cifar100_coarse;
  const std::string near = nearest(word, std::vector<std::string>{"cifar10", "cifar100", "cifar100-coarse"});
  throw UserError(fmt::format("option '--kind' cannot be '{}'", word),
                  near.empty() ? "" : fmt::format("did you mean '{}'?", near),
                  "it is 'cifar10', 'cifar100' or 'cifar100-coarse'");
}

static void run(const Words& words) {
  namespace po = boost::program_options;
  po::options_description options("options");
  options.add_options()(
      "input", po::value<std::vector<std::string>>()->required()->multitoken()->value_name("FILE..."),
      ".bin files in the order of their samples, plain or .gz")(
      "kind", po::value<std::string>()->default_value("cifar10")->value_name("WORD"),
      "cifar10, cifar100 (fine labels) or cifar100-coarse")(
      "class-names", po::value<std::string>()->value_name("A,B,..."),
      "names of the classes; default: CIFAR-10's own, else 0,1,...");
  add_output_options(options);
  const auto values = parse("pack-cifar", "--input FILE... --out FILE [OPTIONS]", options, words, "input");
  if (!values) return;

  const data::CifarKind kind = kind_of((*values)["kind"].as<std::string>());
  const data::CifarFiles input = data::read_cifar((*values)["input"].as<std::vector<std::string>>(), kind);
  data::WriterOptions writer{
      .num_samples = input.num_samples(), .image = {32, 32, 3}, .made_by = made_by("pack-cifar", words)};
  if (values->count("class-names"))
    writer.class_names = split_names((*values)["class-names"].as<std::string>());
  else if (kind == data::CifarKind::cifar10)
    writer.class_names = split_names("airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck");
  else
    for (int64_t c = 0; c < data::cifar_classes(kind); ++c) writer.class_names.push_back(std::to_string(c));
  pack(
      *values, writer, [&](uint64_t sample, uint8_t* out) { input.image(sample, out); },
      [&](uint64_t sample) { return input.label(sample); });
}

Command pack_cifar() { return {"pack-cifar", "CIFAR-10 and CIFAR-100 binary files to a data file", run}; }

}  // namespace lockstep::datatool
