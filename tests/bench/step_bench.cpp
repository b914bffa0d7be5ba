// Whole training steps of a model on synthetic images, and what oneDNN's convolutions alone would take.
//   step_bench MODEL BATCH STEPS [THREADS] [fp32|bf16|fp16] [native|emulated]
// The last argument overrules where bf16 products are computed.
// Prints one JSON object: median milliseconds of a step (loading aside), of its convolutions alone through
// the library with layouts of its choice, and the peak resident memory before the convolutions were measured.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/huge_buffer.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/onednn.h"
#include "models/registry.h"

using namespace lockstep;
using namespace lockstep::device;
using Clock = std::chrono::steady_clock;

namespace {

double milliseconds(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// One convolution with every layout the library's own choice.
class Convolution {
 public:
  Convolution(const nn::Graph& g, const nn::Node& node, const nn::Conv2d& op, const dnnl::engine& engine,
              bool data_gradient, cpu::memory::data_type type) {
    using namespace cpu;
    const Shape x = g.shape(node.inputs[0]), y = g.shape(node.output);
    auto any = [&](const Dims& d) { return memory::desc(d, type, memory::format_tag::any); };
    Dims w = dims_of(g.parameters[node.parameters[0]].shape);
    if (op.groups > 1) {
      w[0] /= op.groups;
      w.insert(w.begin(), op.groups);
    }
    const ConvolutionShape c{{op.stride[0], op.stride[1]},
                             {op.dilation[0] - 1, op.dilation[1] - 1},
                             {op.padding[0], op.padding[1]}};
    auto forward = conv_forward(engine, any(dims_of(x)), any(w), {}, any(dims_of(y)), c);
    add(dnnl::convolution_forward(forward), engine, forward.scratchpad_desc(),
        {{DNNL_ARG_SRC, forward.src_desc()},
         {DNNL_ARG_WEIGHTS, forward.weights_desc()},
         {DNNL_ARG_DST, forward.dst_desc()}});
    auto weights =
        conv_backward_weights(engine, any(dims_of(x)), {w, memory::data_type::f32, memory::format_tag::any},
                              {}, any(dims_of(y)), c, forward);
    add(dnnl::convolution_backward_weights(weights), engine, weights.scratchpad_desc(),
        {{DNNL_ARG_SRC, weights.src_desc()},
         {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()},
         {DNNL_ARG_DIFF_DST, weights.diff_dst_desc()}});
    if (!data_gradient) return;
    auto data = conv_backward_data(engine, any(dims_of(x)), any(w), any(dims_of(y)), c, forward);
    add(dnnl::convolution_backward_data(data), engine, data.scratchpad_desc(),
        {{DNNL_ARG_DIFF_SRC, data.diff_src_desc()},
         {DNNL_ARG_WEIGHTS, data.weights_desc()},
         {DNNL_ARG_DIFF_DST, data.diff_dst_desc()}});
  }
  void run(dnnl::stream& stream) {
    for (auto& [primitive, args] : primitives_) primitive.execute(stream, args);
  }

 private:
  using Args = std::unordered_map<int, dnnl::memory>;
  void add(dnnl::primitive p, const dnnl::engine& engine, const dnnl::memory::desc& scratchpad,
           std::vector<std::pair<int, dnnl::memory::desc>> descs) {
    descs.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
    Args args;
    for (const auto& [id, md] : descs) {
      buffers_.emplace_back(std::max<size_t>(md.get_size(), 64));
      args.emplace(id, dnnl::memory(md, engine, buffers_.back().data()));
    }
    primitives_.emplace_back(std::move(p), std::move(args));
  }
  std::vector<HugeBuffer> buffers_;
  std::vector<std::pair<dnnl::primitive, Args>> primitives_;
};

double convolutions_alone(const nn::Graph& g, int rounds, cpu::memory::data_type type) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  double total = 0;
  for (const nn::Node& node : g.nodes) {
    const auto* op = std::get_if<nn::Conv2d>(&node.op);
    if (!op) continue;
    const bool first = std::holds_alternative<nn::Input>(g.nodes[g.values[node.inputs[0]].producer].op);
    Convolution conv(g, node, *op, engine, !first, type);
    std::vector<double> times;
    for (int i = 0; i <= rounds; ++i) {
      const auto a = Clock::now();
      conv.run(stream);
      if (i > 0) times.push_back(milliseconds(a, Clock::now()));
    }
    total += median(times);
  }
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4)
    return std::fprintf(stderr, "usage: step_bench MODEL BATCH STEPS [THREADS] [PRECISION] [WHERE]\n"), 2;
  const int64_t batch = std::atoll(argv[2]);
  const int steps = std::atoi(argv[3]);
  const std::string name = argc > 5 ? argv[5] : "fp32";
  const nn::Precision precision = name == "bf16"   ? nn::Precision::bf16
                                  : name == "fp16" ? nn::Precision::fp16
                                                   : nn::Precision::fp32;
  auto device = make_cpu_device(argc > 4 ? std::atoi(argv[4]) : 0, {},
                                argc > 6 ? std::optional(argv[6] == std::string("native")) : std::nullopt);
  const bool halves = precision == nn::Precision::bf16 && device->precision_note(precision).empty();
  models::ModelOptions options;
  options.name = argv[1];
  options = models::resolve(options);
  const nn::Graph g = models::build(options, batch);
  auto store = device->make_store(g, precision);
  auto program = device->compile(g, *store, Mode::train);
  store->initialize(1);
  store->refresh_copies();
  std::vector<float> images(g.shape(0).count());
  for (size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(i * 2654435761u % 4096) / 2048.0f - 1.0f;
  std::vector<int32_t> labels(batch);
  std::vector<uint64_t> rows(batch);
  for (int64_t i = 0; i < batch; ++i) labels[i] = static_cast<int32_t>(i % options.classes), rows[i] = i;
  const HugeBuffer momentum(store->values().size_bytes());
  std::vector<double> times;
  for (int i = -2; i < steps; ++i) {
    const auto a = Clock::now();
    program->load({batch, images.data(), labels.data(), rows.data(), nullptr});
    program->forward({1, static_cast<uint32_t>(i), 1.0f / static_cast<float>(batch), 1});
    program->backward([](Range) {});
    device->sum_of_squares(store->gradients());
    device->update(SgdStep{0.01f, 0.9f, 1e-4f, false},
                   {store->values(), momentum.as<float>(), {}, {}, store->gradients()});
    store->refresh_copies();
    if (i >= 0) times.push_back(milliseconds(a, Clock::now()));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"model\": \"%s\", \"batch\": %ld, \"threads\": %d, \"precision\": \"%s\", \"native\": %s, "
      "\"step_ms\": %.3f, \"convolutions_ms\": %.3f, \"peak_mib\": %.1f, \"arena_mib\": %.1f}\n",
      argv[1], static_cast<long>(batch), device->threads(), name.c_str(),
      device->precision_note(precision).empty() ? "true" : "false", median(times),
      convolutions_alone(g, std::max(3, steps / 2),
                         halves ? cpu::memory::data_type::bf16 : cpu::memory::data_type::f32),
      static_cast<double>(usage.ru_maxrss) / 1024, static_cast<double>(program->memory().arena) / 1048576);
}
