// Our own kernels of native bf16: weight gradients against a plain sum, copies of weights against the
// library.
#include "device/cpu/weight_gradient.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "core/huge_buffer.h"
#include "device/cpu/half.h"
#include "device/cpu/paired_weights.h"

namespace lockstep::device::cpu {
namespace {

constexpr int64_t B = 16;

// Small halves that differ from place to place, and their values.
struct Halves {
  std::vector<uint16_t> bits;
  explicit Halves(int64_t count) : bits(static_cast<size_t>(count)) {
    for (size_t i = 0; i < bits.size(); ++i)
      bits[i] = static_cast<uint16_t>(
          Bf16::narrow(static_cast<float>(static_cast<int>(i * 2654435761u >> 7 & 255) - 128) / 64.0f));
  }
  double operator[](int64_t i) const { return Bf16::widen<float>(uint32_t{bits[static_cast<size_t>(i)]}); }
};

std::vector<float> run(const WeightGradient& g, const Halves& x, const Halves& dy, int threads) {
  std::vector<float> dw(static_cast<size_t>(g.outputs * g.inputs * g.height.kernel * g.width.kernel * B * B),
                        NAN);
  const HugeBuffer scratch(WeightGradient::scratch_bytes(threads));
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  g.run(x.bits.data(), dy.bits.data(), dw.data(), scratch.data());
  omp_set_num_threads(before);
  return dw;
}

double plain_sum(const WeightGradient& g, const Halves& x, const Halves& dy, int64_t o, int64_t i,
                 int64_t row, int64_t column) {
  double sum = 0;
  for (int64_t n = 0; n < g.samples; ++n)
    for (int64_t h = 0; h < g.height.out; ++h)
      for (int64_t w = 0; w < g.width.out; ++w) {
        const int64_t y = h * g.height.stride - g.height.padding + row * g.height.dilation;
        const int64_t z = w * g.width.stride - g.width.padding + column * g.width.dilation;
        if (y < 0 || y >= g.height.in || z < 0 || z >= g.width.in) continue;
        sum += x[(((n * g.inputs + i / B) * g.height.in + y) * g.width.in + z) * B + i % B] *
               dy[(((n * g.outputs + o / B) * g.height.out + h) * g.width.out + w) * B + o % B];
      }
  return sum;
}

WeightGradient::Axis axis(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return {in,      (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1, kernel, stride, padding,
          dilation};
}

TEST(WeightGradientTest, IsTheSumOverAllPixelsWithAnyNumberOfThreads) {
  if (!WeightGradient::pays()) GTEST_SKIP() << "the processor has no AVX512_BF16, or has AMX";
  const WeightGradient cases[] = {
      {3, 2, 1, axis(4, 1, 1, 0, 1), axis(6, 1, 1, 0, 1)},    // pixels of all samples in one chunk
      {300, 1, 2, axis(3, 1, 1, 0, 1), axis(3, 1, 1, 0, 1)},  // an odd number, several chunks of samples
      {700, 1, 1, axis(1, 1, 1, 0, 1), axis(1, 1, 1, 0, 1)},  // a single pixel each
      {2, 1, 3, axis(37, 1, 1, 0, 1), axis(29, 1, 1, 0, 1)},  // several chunks a sample, the last one odd
      {2, 3, 1, axis(7, 3, 1, 1, 1), axis(7, 3, 1, 1, 1)},    // taps beyond each edge
      {2, 2, 2, axis(9, 3, 2, 1, 1), axis(10, 3, 2, 1, 1)},   // strided, the last column unread
      {1, 1, 1, axis(8, 1, 2, 0, 1), axis(9, 1, 3, 0, 1)},    // strides that differ
      {1, 1, 1, axis(5, 5, 2, 4, 2), axis(3, 3, 2, 5, 3)},    // more padding and dilation than image
      {1, 1, 2, axis(61, 3, 2, 1, 1), axis(63, 5, 2, 2, 1)},  // rows that a chunk's end cuts
  };
  for (const WeightGradient& g : cases) {
    SCOPED_TRACE(&g - cases);
    const Halves x(g.samples * g.inputs * g.height.in * g.width.in * B);
    const Halves dy(g.samples * g.outputs * g.height.out * g.width.out * B);
    const std::vector<float> dw = run(g, x, dy, 1);
    const int64_t taps = g.height.kernel * g.width.kernel;
    for (int64_t o = 0; o < g.outputs * B; o += 5)
      for (int64_t i = 0; i < g.inputs * B; i += 3)
        for (int64_t t = 0; t < taps; ++t) {
          const double expected = plain_sum(g, x, dy, o, i, t / g.width.kernel, t % g.width.kernel);
          const float got =
              dw[static_cast<size_t>((((o / B * g.inputs + i / B) * taps + t) * B + i % B) * B + o % B)];
          ASSERT_NEAR(got, expected, 1e-5 * (1 + std::abs(expected)) * 4) << o << " " << i << " tap " << t;
        }
    for (int threads : {2, 3, 4, 6}) EXPECT_EQ(run(g, x, dy, threads), dw) << threads << " threads";
  }
}

TEST(PairedWeightsTest, AreWhatTheLibraryWrites) {
  using tag = memory::format_tag;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (const Dims& dims : {Dims{64, 32, 1, 1}, Dims{48, 80, 3, 3}, Dims{20, 7, 2, 3}})
    for (const tag to : {tag::ABcd8b16a2b, tag::ABcd8a16b2a, tag::BAcd8a16b2a}) {
      const memory::desc from_md(dims, memory::data_type::f32, tag::ABcd16b16a),
          to_md(dims, memory::data_type::bf16, to);
      const auto paired = PairedWeights::make(from_md, to_md);
      ASSERT_TRUE(paired);
      std::vector<float> logical(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]));
      for (size_t i = 0; i < logical.size(); ++i)
        logical[i] = std::ldexp(1.0f + static_cast<float>(i % 977) / 977, int(i % 40) - 20);
      memory plain({dims, memory::data_type::f32, tag::abcd}, engine, logical.data()), from(from_md, engine),
          expected(to_md, engine);
      dnnl::reorder(plain, from).execute(stream, plain, from);
      dnnl::reorder(from, expected).execute(stream, from, expected);
      std::vector<uint16_t> got(to_md.get_size() / 2, 0xffff);
#pragma omp parallel
      paired->share(static_cast<const float*>(from.get_data_handle()), got.data());
      EXPECT_EQ(std::memcmp(got.data(), expected.get_data_handle(), to_md.get_size()), 0);
    }
  const memory::desc plain({64, 32, 1, 1}, memory::data_type::f32, tag::abcd);
  EXPECT_FALSE(PairedWeights::make(plain, {{64, 32, 1, 1}, memory::data_type::bf16, tag::ABcd8b16a2b}));
  EXPECT_FALSE(PairedWeights::make({{64, 32, 1, 1}, memory::data_type::f32, tag::ABcd16b16a}, plain));
}

}  // namespace
}  // namespace lockstep::device::cpu
