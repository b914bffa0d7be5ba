#include "models/registry.h"

#include "core/error.h"
#include "models/families.h"

namespace lockstep::models {
namespace {

using Builder = nn::ValueId (*)(nn::Graph&, nn::ValueId, const ModelOptions&);

struct Entry {
  ModelInfo info;
  Builder builder;
};

template <int Depth, Stem S>
Entry resnet_entry() {
  const bool imagenet = S == Stem::imagenet;
  const std::string depth = std::to_string(Depth);
  const int64_t size = imagenet ? 224 : 32;
  return {{.name = "resnet" + depth + (imagenet ? "" : "_32"),
           .summary = "ResNet-" + depth +
                      (imagenet ? " v1.5, as torchvision's" : " with a 3x3 stem for images of about 32x32"),
           .classes = imagenet ? 1000 : 10,
           .channels = 3,
           .height = size,
           .width = size,
           .minimum_size = imagenet ? 32 : 8,
           .dropout = 0},
          [](nn::Graph& graph, nn::ValueId x, const ModelOptions& options) {
            return resnet(graph, x, options, Depth, S);
          }};
}

Entry cnn_entry() {
  return {{.name = "cnn",
           .summary = "small convolutional network for 28x28 images",
           .classes = 10,
           .channels = 1,
           .height = 28,
           .width = 28,
           .minimum_size = 4,
           .dropout = 0},
          cnn};
}

/// A new model is a file with its builder, and a line here.
std::vector<Entry> entries() {
  return {cnn_entry(),
          resnet_entry<18, Stem::imagenet>(),
          resnet_entry<34, Stem::imagenet>(),
          resnet_entry<50, Stem::imagenet>(),
          resnet_entry<101, Stem::imagenet>(),
          resnet_entry<152, Stem::imagenet>(),
          resnet_entry<18, Stem::cifar>(),
          resnet_entry<34, Stem::cifar>(),
          resnet_entry<50, Stem::cifar>(),
          resnet_entry<101, Stem::cifar>(),
          resnet_entry<152, Stem::cifar>()};
}

Entry find_entry(const std::string& name) {
  std::vector<std::string> names;
  for (Entry& e : entries()) {
    if (e.info.name == name) return e;
    names.push_back(e.info.name);
  }
  const std::string near = nearest(name, names);
  throw UserError("unknown model '" + name + "'", "no model has that name",
                  near.empty() ? "see 'trainer --help' for the list" : "did you mean '" + near + "'?");
}

int64_t size_or_default(int64_t asked, int64_t fallback, const std::string& what, const std::string& model) {
  if (asked < 0)
    throw UserError("model '" + model + "' with " + what + " '" + std::to_string(asked) + "'",
                    what + " must be 1 or more", "give a positive number, or 0 for the model's default");
  return asked == 0 ? fallback : asked;
}

}  // namespace

std::vector<ModelInfo> list() {
  std::vector<ModelInfo> infos;
  for (Entry& e : entries()) infos.push_back(std::move(e.info));
  return infos;
}

ModelInfo find(const std::string& name) { return find_entry(name).info; }

ModelOptions resolve(const ModelOptions& options) {
  const ModelInfo m = find(options.name);
  ModelOptions r = options;
  r.classes = size_or_default(options.classes, m.classes, "classes", m.name);
  r.channels = size_or_default(options.channels, m.channels, "channels", m.name);
  r.height = size_or_default(options.height, m.height, "height", m.name);
  r.width = size_or_default(options.width, m.width, "width", m.name);
  r.dropout = options.dropout.value_or(m.dropout);
  if (r.height < m.minimum_size || r.width < m.minimum_size) {
    const std::string least = std::to_string(m.minimum_size);
    throw UserError("images of '" + std::to_string(r.height) + "x" + std::to_string(r.width) +
                        "' are too small for model '" + m.name + "'",
                    "it halves them until '" + least + "x" + least + "' is one pixel",
                    "use images of at least '" + least + "x" + least + "', or another model");
  }
  if (!(*r.dropout >= 0 && *r.dropout < 1))
    throw UserError("dropout '" + std::to_string(*r.dropout) + "' is no probability below 1",
                    "at 1 nothing would be left to train", "give a dropout of at least 0 and below 1");
  return r;
}

nn::Graph build(const ModelOptions& options, int64_t micro_batch, const nn::SoftmaxCrossEntropy& loss) {
  const ModelOptions r = resolve(options);
  if (micro_batch < 1)
    throw UserError("micro-batch of '" + std::to_string(micro_batch) + "' samples", "it must be 1 or more",
                    "set a positive micro-batch");
  nn::Graph graph(micro_batch);
  const nn::ValueId x = graph.input({r.channels, r.height, r.width});
  graph.softmax_cross_entropy(find_entry(r.name).builder(graph, x, r), loss);
  for (nn::Node& node : graph.nodes)
    if (auto* bn = std::get_if<nn::BatchNorm>(&node.op)) bn->sync = r.sync_batch_norm;
  return graph;
}

}  // namespace lockstep::models
