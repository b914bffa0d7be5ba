// datatool generate: a synthetic set that can be learned.
#include "data/generate.h"

#include "command.h"
#include "core/progress.h"
#include "pack.h"

namespace lockstep::datatool {

static void run(const Words& words) {
  namespace po = boost::program_options;
  data::GenerateOptions o;
  po::options_description options("options");
  options.add_options()("samples", po::value(&o.num_samples)->default_value(o.num_samples)->value_name("N"),
                        "images")("classes", po::value(&o.classes)->default_value(o.classes)->value_name("N"),
                                  "classes")(
      "size", po::value(&o.size)->default_value(o.size)->value_name("N"), "height and width in pixels")(
      "channels", po::value(&o.channels)->default_value(o.channels)->value_name("N"), "1 to 4")(
      "eval", po::bool_switch(&o.eval), "other samples of the same classes, to evaluate on");
  add_output_options(options);
  const auto values = parse("generate", "--out FILE [OPTIONS]", options, words);
  if (!values) return;
  o.seed = (*values)["seed"].as<uint64_t>();
  o.compress = (*values)["compress"].as<bool>();
  const std::string out = (*values)["out"].as<std::string>();
  Progress progress("generating", static_cast<uint64_t>(o.num_samples), "samples");
  data::generate_file(out, o, made_by("generate", words), if_exists(*values),
                      [&](uint64_t rows) { progress.advance(rows); });
  progress.finish();
  print_written(out);
}

Command generate() { return {"generate", "a synthetic image classification set that can be learned", run}; }

}  // namespace lockstep::datatool
