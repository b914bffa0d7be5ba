// Every operator, both directions, against PyTorch (tests/golden/ops).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden/golden.h"
#include "operator_bench.h"

namespace lockstep::device::cpu {
namespace {

using golden::Fixture;

/// What is computed in, and how far from PyTorch's fp32 values that may lead: relative, L2.
struct Arithmetic {
  const char* name;
  nn::Precision precision;
  bool native_bf16;
  double tolerance;
};
constexpr Arithmetic kFp32{"fp32", nn::Precision::fp32, false,
                           2e-5};  // Winograd's transforms cost about one digit
constexpr Arithmetic kHalves[] = {{"bf16_native", nn::Precision::bf16, true, 1e-2},
                                  {"bf16_emulated", nn::Precision::bf16, false, 1e-2},
                                  {"fp16", nn::Precision::fp16, false, 2e-3}};

struct Case {
  nn::Graph graph{1};
  std::vector<nn::ValueId> seeds;
};

Shape sample(const Shape& s) { return s.rank() == 4 ? Shape{s[1], s[2], s[3]} : Shape{s[1], 1, 1}; }

// The tensors "x", "x2", ... as values that want a gradient: each behind a ReLU that is never run.
Case build(const Fixture& f) {
  Case c;
  c.graph = nn::Graph(f.shape("x")[0]);
  const nn::ValueId in = c.graph.input(sample(f.shape("x")));
  std::vector<nn::ValueId> x;
  for (const char* name : {"x", "x2", "x3"}) {
    if (!f.has(name)) continue;
    x.push_back(c.graph.relu(in));
    const Shape s = f.shape(name);
    c.graph.values[x.back()].shape = s.rank() == 4 ? s : Shape{s[0], s[1], 1, 1};
  }
  c.seeds = x;
  nn::Graph& g = c.graph;
  const std::string op = f.text("op");
  if (op == "conv2d") {
    g.conv2d("op", x[0],
             {f.shape("weight")[0], f.pair("kernel"), f.pair("stride"), f.pair("padding"), f.pair("dilation"),
              f.integer("groups"), f.flag("bias")});
  } else if (op == "linear" || op == "flatten_linear") {
    g.linear("op", g.flatten(x[0]), {f.shape("weight")[0], f.flag("bias")});
  } else if (op == "batch_norm") {
    nn::ValueId y = g.batch_norm("op", x[0], {f.number("eps"), f.number("momentum")});
    if (f.flag("add")) y = g.add(y, x[1]);
    if (f.flag("relu")) y = g.relu(y);
    if (f.flag("pool")) g.max_pool(y);
  } else if (op == "relu") {
    g.relu(x[0]);
  } else if (op == "gelu") {
    g.gelu(x[0]);
  } else if (op == "max_pool") {
    g.max_pool(x[0], {f.pair("kernel"), f.pair("stride"), f.pair("padding")});
  } else if (op == "avg_pool") {
    g.avg_pool(x[0], {f.pair("kernel"), f.pair("stride"), f.pair("padding"), f.flag("count_include_pad")});
  } else if (op == "global_avg_pool") {
    g.global_avg_pool(x[0]);
  } else if (op == "add") {
    nn::ValueId y = g.add(x[0], x[1]);
    if (f.flag("relu")) g.relu(y);
  } else if (op == "concat") {
    g.concat(x);
  } else if (op == "softmax_cross_entropy") {
    g.softmax_cross_entropy(g.flatten(x[0]),
                            {f.number("label_smoothing"), static_cast<int32_t>(f.integer("ignore_index"))});
  } else {
    throw std::logic_error("no such operator: " + op);
  }
  return c;
}

std::string seed_name(size_t i) { return i == 0 ? "x" : "x" + std::to_string(i + 1); }

std::string test_name(const std::string& fixture, const Arithmetic& arithmetic) {
  std::string name = fixture.substr(4);
  std::replace_if(
      name.begin(), name.end(), [](char ch) { return !isalnum(ch); }, '_');
  return name + "_" + arithmetic.name;
}

bool runs(const Arithmetic& arithmetic) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);  // slow without bf16 instructions
  return !arithmetic.native_bf16 || (isa & bf16) == bf16;
}

class OperatorGolden : public testing::TestWithParam<std::tuple<std::string, Arithmetic>> {};

TEST_P(OperatorGolden, EqualsPyTorch) {
  const auto& [name, arithmetic] = GetParam();
  if (!runs(arithmetic)) GTEST_SKIP() << "oneDNN has no bf16 on this processor";
  const double tolerance = arithmetic.tolerance;
  const Fixture f(name);
  Case c = build(f);
  const bool train = !f.has("running_mean") || f.flag("train");
  OperatorBench bench(c.graph, c.seeds, train ? Mode::train : Mode::evaluate, train, arithmetic.precision,
                      arithmetic.native_bf16);
  for (size_t i = 0; i < c.seeds.size(); ++i) bench.set(c.seeds[i], f.floats(seed_name(i)));
  CpuStore& store = bench.store();
  for (const ParameterSlot& p : store.parameters()) store.pack(p, f.floats(p.name.substr(3)), store.values());
  for (const BufferSlot& b : store.buffers()) {
    const std::vector<float> v = f.floats(b.name.substr(3));
    std::copy(v.begin(), v.end(), store.buffer_values().begin() + b.range.begin);
  }
  store.refresh_copies();

  const bool loss = f.text("op") == "softmax_cross_entropy";
  const std::vector<int32_t> labels = loss ? f.ints("labels") : std::vector<int32_t>();
  const std::vector<float> weights =
      f.has("sample_weight") ? f.floats("sample_weight") : std::vector<float>();
  const nn::Batch batch{f.shape("x")[0], nullptr, labels.data(), nullptr,
                        weights.empty() ? nullptr : weights.data()};
  bench.forward(batch, {});
  if (loss) {
    EXPECT_LT(
        golden::relative_error(std::vector<float>{store.metrics(store.statistics()).loss_sum}, f.floats("y")),
        tolerance);
  } else {
    EXPECT_LT(golden::relative_error(bench.output(), f.floats("y")), tolerance) << "y";
  }
  if (!train) return;

  if (!loss) bench.set_output_gradient(f.floats("dy"));
  bench.backward(batch, {});
  for (size_t i = 0; i < c.seeds.size(); ++i)
    EXPECT_LT(golden::relative_error(bench.gradient(c.seeds[i]), f.floats("d" + seed_name(i))), tolerance)
        << "d" << seed_name(i);
  for (const ParameterSlot& p : store.parameters()) {
    std::vector<float> logical(p.shape.count());
    store.unpack(p, store.gradients(), logical);
    EXPECT_LT(golden::relative_error(logical, f.floats("d" + p.name.substr(3))), tolerance) << p.name;
  }
  if (store.buffers().empty()) return;
  store.statistics()[5] = 1;  // the loss, which this graph lacks, states the shard's share
  store.update_running_statistics(store.statistics());
  for (const BufferSlot& b : store.buffers()) {
    const auto* v = store.buffer_values().data() + b.range.begin;
    EXPECT_LT(golden::relative_error(std::vector<float>(v, v + b.shape.count()),
                                     f.floats(b.name.substr(3) + "_after")),
              tolerance)
        << b.name;
  }
}

// Where rounded inputs may take another branch than PyTorch's floats did, a fixture of its own stands in.
std::vector<std::string> half_cases() {
  std::vector<std::string> cases = golden::operator_cases();
  std::erase_if(cases, [](const std::string& name) {
    const bool branches = name.starts_with("ops/max_pool") || name.starts_with("ops/batch_norm_relu") ||
                          name == "ops/batch_norm_add_relu";
    return branches && !name.ends_with("_half") && !name.ends_with("_eval");
  });
  return cases;
}

std::string case_name(const testing::TestParamInfo<OperatorGolden::ParamType>& info) {
  return test_name(std::get<0>(info.param), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Fp32, OperatorGolden,
                         testing::Combine(testing::ValuesIn(golden::operator_cases()),
                                          testing::Values(kFp32)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Half, OperatorGolden,
                         testing::Combine(testing::ValuesIn(half_cases()), testing::ValuesIn(kHalves)),
                         case_name);

class PaddedChannels : public testing::TestWithParam<const char*> {};

TEST_P(PaddedChannels, StayZero) {
  const Fixture f(GetParam());
  Case c = build(f);
  OperatorBench bench(c.graph, c.seeds, Mode::train, true);
  bench.set(c.seeds[0], f.floats("x"));
  CpuStore& store = bench.store();
  for (const ParameterSlot& p : store.parameters()) store.pack(p, f.floats(p.name.substr(3)), store.values());
  bench.forward({f.shape("x")[0]}, {});
  double padded = 0, real = 0;
  for (float v : bench.raw_output()) padded += v;
  for (float v : bench.output()) real += v;
  EXPECT_NEAR(padded, real, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(All, PaddedChannels,
                         testing::Values("ops/batch_norm_relu_odd", "ops/batch_norm_relu_pool_odd"));

// Where the largest of a window is there twice, the first takes the gradient, as in PyTorch.
TEST(BatchNormPool, TheFirstOfEqualsTakesTheGradient) {
  const Fixture f("ops/batch_norm_relu_pool");
  Case c = build(f);
  OperatorBench bench(c.graph, c.seeds, Mode::train, true);
  const Shape s = f.shape("x");
  std::vector<float> x(s.count(), 0.0f);
  x[2] = x[3] = 1;  // the second window of the first row of pixels; all zeros in the others
  bench.set(c.seeds[0], x);
  CpuStore& store = bench.store();
  store.initialize(1);  // scale 1, shift 0: zeros end below the mean, where the ReLU stops them
  bench.forward({s[0]}, {});
  const std::vector<float> y = bench.output();
  EXPECT_EQ(std::count_if(y.begin(), y.end(), [](float v) { return v > 0; }), 1);
  EXPECT_GT(y[1], 0);
  bench.set_output_gradient(std::vector<float>(y.size(), 1.0f));
  bench.backward({s[0]}, {});
  const std::vector<float> dx = bench.gradient(c.seeds[0]);
  EXPECT_GT(dx[2], 0);  // its own gradient, less what the mean and variance take back of it
  EXPECT_LT(dx[3], 0);  // only the latter
}

TEST(BatchNormPool, NaNPasses) {
  const Fixture f("ops/batch_norm_relu_pool_eval");
  Case c = build(f);
  OperatorBench bench(c.graph, c.seeds, Mode::evaluate, false);
  const Shape s = f.shape("x");
  for (int64_t place : {0, 1, 4, 5}) {  // each of the first window of a 4x4 image
    std::vector<float> x(s.count(), 0.0f);
    x[place] = std::nanf("");
    bench.set(c.seeds[0], x);
    bench.store().initialize(1);
    bench.forward({s[0]}, {});
    EXPECT_TRUE(std::isnan(bench.output()[0])) << place;
    EXPECT_FALSE(std::isnan(bench.output()[1])) << place;
  }
}

}  // namespace
}  // namespace lockstep::device::cpu
