// Whole networks against PyTorch: forward, loss, every gradient, and twenty SGD steps
// (tests/golden/networks).
#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "golden/formula.h"
#include "golden/golden.h"
#include "models/registry.h"

namespace lockstep::device {
namespace {

std::vector<float> logical(const Store& store, const ParameterSlot& p, std::span<const float> flat) {
  std::vector<float> out(p.shape.count());
  store.unpack(p, flat, out);
  return out;
}

bool is_norm(const nn::Graph& g, const std::string& parameter) {
  for (const nn::Node& n : g.nodes)
    if (std::holds_alternative<nn::BatchNorm>(n.op) && parameter.starts_with(n.name + ".")) return true;
  return false;
}

const ParameterSlot& find(const Store& store, const std::string& name) {
  for (const ParameterSlot& p : store.parameters())
    if (p.name == name) return p;
  throw std::out_of_range(name);
}

struct Network {
  Network(const golden::Fixture& f, int64_t batch, const Shape& sample,
          nn::Precision precision = nn::Precision::fp32, bool native_bf16 = false)
      : device(make_cpu_device(2, {}, native_bf16)) {
    models::ModelOptions options{f.text("model"), f.integer("classes"), sample[0], sample[1], sample[2], 0.0};
    graph = models::build(options, batch);
    store = device->make_store(graph, precision);
    program = device->compile(graph, *store, Mode::train);
    for (const ParameterSlot& p : store->parameters())
      store->pack(p, golden::parameter(p.name, p.shape, is_norm(graph, p.name)), store->values());
    store->refresh_copies();
  }
  std::unique_ptr<Device> device;
  nn::Graph graph{1};
  std::unique_ptr<Store> store;
  std::unique_ptr<Program> program;
};

/// A network, what it is computed in, and how far from PyTorch's fp32 values that may lead: the loss and
/// logits, each parameter's gradient, and their errors' mean. Half precision moves many a ReLU across its
/// kink on the way, which the gradients of single parameters show.
struct Case {
  const char* name;
  const char* network;
  nn::Precision precision;
  bool native_bf16;
  double loss, gradient, mean;
};

class ResnetGolden : public testing::TestWithParam<Case> {};

TEST_P(ResnetGolden, LossAndAllGradientsEqualPyTorch) {
  const Case& c = GetParam();
  const golden::Fixture f(std::string("networks/") + c.network);
  const std::vector<std::string> dims = f.list("shape");
  const Shape sample{std::stoll(dims[0]), std::stoll(dims[1]), std::stoll(dims[2])};
  const int64_t batch = f.integer("batch"), classes = f.integer("classes");
  const std::string salt = f.text("salt");
  Network net(f, batch, sample, c.precision, c.native_bf16);

  const std::vector<int32_t> labels = golden::labels(salt, batch, classes);
  const std::vector<float> images = golden::images(salt, sample, labels);
  const std::vector<uint64_t> ids(batch, 0);
  net.program->load({batch, images.data(), labels.data(), ids.data(), nullptr});
  net.program->forward({});
  std::vector<float> logits(batch * classes);
  net.program->logits(logits);
  EXPECT_LT(golden::relative_error(logits, f.doubles("logits")), c.loss);
  EXPECT_NEAR(net.store->metrics(net.store->statistics()).loss_sum, f.doubles("loss")[0],
              c.loss * std::abs(f.doubles("loss")[0]));

  std::vector<Range> ready;
  net.program->backward([&](Range r) { ready.push_back(r); });
  const std::vector<std::string> names = f.list("parameters");
  const std::vector<double> norms = f.doubles("grad_norm"), projections = f.doubles("grad_projection"),
                            samples = f.doubles("grad_samples");
  ASSERT_EQ(names.size(), net.store->parameters().size());
  double worst = 0, sum = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::vector<float> g = logical(*net.store, find(*net.store, names[i]), net.store->gradients());
    const auto count = static_cast<int64_t>(g.size());
    double norm = 0;
    for (float v : g) norm += double{v} * v;
    norm = std::sqrt(norm);
    const double root =
        norms[i] / std::sqrt(static_cast<double>(count));  // of the mean square: a typical entry
    double error = std::abs(norm - norms[i]) / norms[i];
    // A projection on random signs differs by about |error| * rms of the stream.
    error =
        std::max(error, std::abs(golden::projection(names[i], g.data(), count) - projections[i]) / norms[i]);
    const std::vector<int64_t> at = golden::sample_indices(names[i], count, 8);
    for (int k = 0; k < 8; ++k) error = std::max(error, 0.1 * std::abs(g[at[k]] - samples[i * 8 + k]) / root);
    EXPECT_LT(error, c.gradient) << names[i];
    worst = std::max(worst, error);
    sum += error;
  }
  EXPECT_LT(sum / static_cast<double>(names.size()), c.mean);
  RecordProperty("mean_relative_error", std::to_string(sum / static_cast<double>(names.size())));
  RecordProperty("worst_relative_error", std::to_string(worst));

  // Ranges become final front to back and cover everything: a bucket is a slice.
  int64_t at = 0;
  for (const Range& r : ready) {
    EXPECT_EQ(r.begin, at);
    at = r.end;
  }
  EXPECT_EQ(at, static_cast<int64_t>(net.store->gradients().size()));
}

INSTANTIATE_TEST_SUITE_P(
    All, ResnetGolden,
    testing::Values(Case{"resnet18", "resnet18", nn::Precision::fp32, false, 1e-4, 1e-4, 1e-4},
                    Case{"resnet50", "resnet50", nn::Precision::fp32, false, 1e-4, 1e-4, 1e-4},
                    Case{"resnet18_bf16_native", "resnet18", nn::Precision::bf16, true, 2e-2, 0.4, 0.12},
                    Case{"resnet18_bf16_emulated", "resnet18", nn::Precision::bf16, false, 2e-2, 0.4, 0.12},
                    Case{"resnet18_fp16", "resnet18", nn::Precision::fp16, false, 3e-3, 0.15, 0.05}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CnnGolden, TwentySgdStepsFollowPyTorch) {
  const golden::Fixture f("networks/cnn_sgd");
  const int64_t micro = f.integer("micro"), shards = f.integer("shards"), global = micro * shards;
  const Shape sample{1, 28, 28};
  Network net(f, micro, sample);
  Store& store = *net.store;
  std::vector<float> momentum(store.values().size()), sum(store.gradients().size()),
      statistics(store.statistics().size());
  const std::vector<uint64_t> ids(micro, 0);
  const std::vector<double> losses = f.doubles("losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    const std::string name = "cnn/" + std::to_string(step);
    const std::vector<int32_t> labels = golden::labels(name, global, f.integer("classes"));
    const std::vector<float> images = golden::images(name, sample, labels);
    std::fill(sum.begin(), sum.end(), 0.0f);
    std::fill(statistics.begin(), statistics.end(), 0.0f);
    for (int64_t s = 0; s < shards; ++s) {
      net.program->load({micro, images.data() + s * micro * sample.count(), labels.data() + s * micro,
                         ids.data(), nullptr});
      net.program->forward({0, 0, 1.0f / static_cast<float>(global), 1});
      net.device->add(store.statistics(), statistics);
      net.program->backward([](Range) {});
      net.device->add(store.gradients(), sum);
    }
    EXPECT_NEAR(store.metrics(statistics).loss_sum / static_cast<float>(global), losses[step],
                1e-4 * losses[step])
        << "step " << step;
    net.device->update(SgdStep{static_cast<float>(f.number("lr")), static_cast<float>(f.number("momentum")),
                               static_cast<float>(f.number("weight_decay")), false},
                       {store.values(), momentum, {}, {}, sum});
    store.update_running_statistics(statistics);
    store.refresh_copies();
  }
  const std::vector<std::string> names = f.list("parameters");
  const std::vector<double> norms = f.doubles("parameter_norm");
  for (size_t i = 0; i < names.size(); ++i) {
    double norm = 0;
    for (float v : logical(store, find(store, names[i]), store.values())) norm += double{v} * v;
    EXPECT_NEAR(std::sqrt(norm), norms[i], 1e-4 * norms[i]) << names[i];
  }
}

}  // namespace
}  // namespace lockstep::device
