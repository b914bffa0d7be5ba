#include "device/cpu/cpu_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "device/cpu/program.h"
#include "device/cpu/simd.h"
#include "nn/fusion.h"

namespace lockstep::device {

using namespace cpu;

namespace {

// Whether the library's bf16 convolutions beat its fp32 ones. AMX multiplies bf16 16 times as fast as AVX-512
// multiplies floats. Without it, AMD's processors run the AVX-512 instruction for bf16 products at the rate
// of fp32's, two products each; Intel's run it at half the rate or less, and fp32 has Winograd besides
// (ResNet-50's convolutions take 1.8 times as long in bf16 on a Xeon whose AMX is not there). A rule and not
// a measurement at start: all ranks must choose alike.
bool bf16_is_fast() {
#ifdef __x86_64__
  if (runs(dnnl::cpu_isa::avx512_core_bf16) && __builtin_cpu_is("amd")) return true;
#endif
  return runs(dnnl::cpu_isa::avx512_core_amx);
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

// Flat memory is cut into pieces of this many floats; sums are taken per piece and added in order.
constexpr int64_t kPiece = 1 << 14;

LOCKSTEP_SIMD void add_piece(const float* __restrict a, float* __restrict into, int64_t n) {
  for (int64_t i = 0; i < n; ++i) into[i] = a[i] + into[i];
}

LOCKSTEP_SIMD double squares_piece(const float* x, int64_t n) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; ++k) lanes[k] += static_cast<double>(x[i + k]) * x[i + k];
  for (int k = 0; i < n; ++i, ++k) lanes[k] += static_cast<double>(x[i]) * x[i];
  double sum = 0;
  for (double l : lanes) sum += l;
  return sum;
}

LOCKSTEP_SIMD void sgd_piece(const SgdStep& s, const float* __restrict g, float factor, float* __restrict p,
                             float* __restrict m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sgd(s, g[i] * factor, p[i], m[i]);
}
LOCKSTEP_SIMD void sgd_plain_piece(const SgdStep& s, const float* __restrict g, float factor,
                                   float* __restrict p, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float unused = 0;
    sgd(s, g[i] * factor, p[i], unused);
  }
}
LOCKSTEP_SIMD void adamw_piece(const AdamWStep& s, const float* __restrict g, float factor,
                               float* __restrict p, float* __restrict m, float* __restrict v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) adamw(s, g[i] * factor, p[i], m[i], v[i]);
}
LOCKSTEP_SIMD void ema_piece(const float* __restrict p, float decay, float* __restrict average, int64_t n) {
  for (int64_t i = 0; i < n; ++i) average[i] = ema(average[i], decay, p[i]);
}

template <class F>
void by_piece(size_t count, const F& f) {
  const auto total = static_cast<int64_t>(count), pieces = (total + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < pieces; ++i) f(i * kPiece, std::min(kPiece, total - i * kPiece));
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, std::optional<bool> native_bf16)
      : threads_(threads > 0 ? threads : static_cast<int>(cores_in_affinity_mask().size())),
        native_bf16_(native_bf16.value_or(bf16_is_fast())),
        engine_(dnnl::engine::kind::cpu, 0) {
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
  }

  std::string description() const override {
    return processor_name() + (channel_block() == 16 ? ", AVX-512" : "") + ", " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
  }
  int threads() const override { return threads_; }

  std::string precision_note(nn::Precision p) const override {
    if (p == nn::Precision::fp32 || (p == nn::Precision::bf16 && native_bf16_)) return "";
    const std::string name = nn::name_of(p);
    return name + " is emulated: computed in fp32 on values rounded to " + name;
  }

  std::unique_ptr<Store> make_store(const nn::Graph& graph, nn::Precision precision) override {
    return std::make_unique<CpuStore>(nn::fuse(graph), engine_, precision, native_bf16_);
  }
  std::unique_ptr<Program> compile(const nn::Graph& graph, Store& store, Mode mode) override {
    return std::make_unique<CpuProgram>(nn::fuse(graph), dynamic_cast<CpuStore&>(store), mode);
  }

  void copy(std::span<const float> from, std::span<float> to) override {
    by_piece(to.size(), [&](int64_t at, int64_t n) { std::copy_n(from.data() + at, n, to.data() + at); });
  }
  void fill(std::span<float> to, float value) override {
    by_piece(to.size(), [&](int64_t at, int64_t n) { std::fill_n(to.data() + at, n, value); });
  }
  void add(std::span<const float> a, std::span<float> into) override {
    by_piece(into.size(), [&](int64_t at, int64_t n) { add_piece(a.data() + at, into.data() + at, n); });
  }
  double sum_of_squares(std::span<const float> x) override {
    sums_.resize((x.size() + kPiece - 1) / kPiece);
    by_piece(x.size(), [&](int64_t at, int64_t n) { sums_[at / kPiece] = squares_piece(x.data() + at, n); });
    double total = 0;
    for (double s : sums_) total += s;
    return total;
  }
  void update(const SgdStep& s, const UpdateRange& r) override {
    by_piece(r.parameters.size(), [&](int64_t at, int64_t n) {
      float* p = r.parameters.data() + at;
      if (r.moment1.empty()) {
        sgd_plain_piece(s, r.gradients.data() + at, r.gradient_factor, p, n);
      } else {
        sgd_piece(s, r.gradients.data() + at, r.gradient_factor, p, r.moment1.data() + at, n);
      }
      average(r, at, n);
    });
  }
  void update(const AdamWStep& s, const UpdateRange& r) override {
    by_piece(r.parameters.size(), [&](int64_t at, int64_t n) {
      adamw_piece(s, r.gradients.data() + at, r.gradient_factor, r.parameters.data() + at,
                  r.moment1.data() + at, r.moment2.data() + at, n);
      average(r, at, n);
    });
  }

 private:
  static void average(const UpdateRange& r, int64_t at, int64_t n) {
    if (!r.average.empty()) ema_piece(r.parameters.data() + at, r.ema_decay, r.average.data() + at, n);
  }

  int threads_;
  bool native_bf16_;
  dnnl::engine engine_;
  std::vector<double> sums_;
};

}  // namespace

std::string library_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

std::vector<int> cores_in_affinity_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &set)) cores.push_back(c);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::unique_ptr<Device> make_cpu_device(int threads, std::span<const int> cores,
                                        std::optional<bool> native_bf16) {
  if (!cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int c : cores) CPU_SET(c, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
      throw UserError(fmt::format("a replica cannot be bound to cores '{}'", fmt::join(cores, ",")),
                      std::strerror(errno), "check which cores the launcher leaves to this rank");
  }
  return std::make_unique<CpuDevice>(threads, native_bf16);
}

}  // namespace lockstep::device
