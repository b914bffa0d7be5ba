// Batch normalisation with the residual add, ReLU and 2x2 max pool folded in, on blocks of 16 (or 8)
// channels.
//
// Why our own: the library passes over the activations nine times (two for statistics, one to apply, a mask,
// a separate add and ReLU, and as many back). Here forward reads twice and writes once, backward reads x and
// dy twice and writes once, and one block of channels at a time, so that the second read hits the cache;
// behind a folded pool, y and dy are a quarter of that. Sums are taken per sample in double from short float
// runs and added in sample order: they do not depend on threads.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

constexpr int64_t kRun = 128;  ///< pixels summed in float before going to double

// Sums of (x - pivot) and (x - pivot)^2 over the pixels of one sample and channel block.
template <class S, class V>
LOCKSTEP_INLINE void moments(const void* x, int64_t pixels, const void* pivot, double* sum, double* square) {
  constexpr int64_t B = lanes<V>;
  const V p = load<S, V>(pivot, 0);
  for (int64_t k = 0; k < B; ++k) sum[k] = square[k] = 0;
  for (int64_t begin = 0; begin < pixels; begin += kRun) {
    const int64_t end = std::min(pixels, begin + kRun);
    V s0{}, s1{}, q0{}, q1{};
    int64_t i = begin;
    for (; i + 1 < end; i += 2) {
      const V a = load<S, V>(x, i * B) - p, b = load<S, V>(x, (i + 1) * B) - p;
      s0 += a, q0 += a * a;
      s1 += b, q1 += b * b;
    }
    if (i < end) {
      const V a = load<S, V>(x, i * B) - p;
      s0 += a, q0 += a * a;
    }
    s0 += s1, q0 += q1;
    for (int64_t k = 0; k < B; ++k) sum[k] += s0[k], square[k] += q0[k];
  }
}

template <class V>
LOCKSTEP_INLINE V positive(const V& mask_of, const V& v) {
  return mask_of > V{} ? v : V{};
}

// max(v, 0) that lets NaN through, so that a diverged run shows.
template <class V>
LOCKSTEP_INLINE V relu_of(const V& v) {
  return v < V{} ? V{} : v;
}

template <class S, class V>
LOCKSTEP_INLINE void apply(const void* x, const void* residual, bool relu, int64_t pixels, const float* scale,
                           const float* shift, void* y) {
  constexpr int64_t B = lanes<V>;
  const V a = load<V>(scale), b = load<V>(shift);
  if (residual) {
    for (int64_t i = 0; i < pixels; ++i) {
      V v = load<S, V>(x, i * B) * a + b + load<S, V>(residual, i * B);
      store<S, V>(y, i * B, relu ? relu_of(v) : v);
    }
  } else {
    for (int64_t i = 0; i < pixels; ++i) {
      V v = load<S, V>(x, i * B) * a + b;
      store<S, V>(y, i * B, relu ? relu_of(v) : v);
    }
  }
}

// Sums of dz and dz * (x - mean), where dz is dy behind the ReLU's mask. Stores dz where `dz` is given.
template <class S, class V>
LOCKSTEP_INLINE void backward_sums(const void* x, const void* y, const void* dy, const void* dy2, bool relu,
                                   void* dz, int64_t pixels, const float* mean, const float* scale,
                                   const float* shift, double* sum, double* product) {
  constexpr int64_t B = lanes<V>;
  const V m = load<V>(mean), a = load<V>(scale), b = load<V>(shift);
  for (int64_t k = 0; k < B; ++k) sum[k] = product[k] = 0;
  for (int64_t begin = 0; begin < pixels; begin += kRun) {
    const int64_t end = std::min(pixels, begin + kRun);
    V s{}, q{};
    for (int64_t i = begin; i < end; ++i) {
      const V v = load<S, V>(x, i * B);
      V d = load<S, V>(dy, i * B);
      if (dy2) d += load<S, V>(dy2, i * B);
      if (relu) d = positive(y ? load<S, V>(y, i * B) : v * a + b, d);
      if (dz) store<S, V>(dz, i * B, d);
      s += d, q += d * (v - m);
    }
    for (int64_t k = 0; k < B; ++k) sum[k] += s[k], product[k] += q[k];
  }
}

template <class V>
LOCKSTEP_INLINE V larger(const V& a, const V& b) {
  return a > b ? a : b;
}

template <class S, class V>
LOCKSTEP_INLINE void apply_pool(const void* x, int64_t height, int64_t width, const float* scale,
                                const float* shift, void* y) {
  constexpr int64_t B = lanes<V>;
  const V a = load<V>(scale), b = load<V>(shift);
  int64_t out = 0;
  for (int64_t h = 0; h < height; h += 2)
    for (int64_t w = 0; w < width; w += 2, out += B) {
      int64_t i = (h * width + w) * B;
      const V z0 = load<S, V>(x, i) * a + b, z1 = load<S, V>(x, i + B) * a + b;
      i += width * B;
      const V z2 = load<S, V>(x, i) * a + b, z3 = load<S, V>(x, i + B) * a + b;
      const V best = relu_of(larger(larger(z0, z1), larger(z2, z3)));
      const V sum = (z0 + z1) + (z2 + z3);  // NaN where any is, so that a diverged run shows
      store<S, V>(y, out, sum != sum ? sum : best);
    }
}

// The four pixels of a 2x2 window, and the gradient of each behind pool and ReLU: `d` for the first of the
// largest, if it is positive. Each choice compares in place: combined masks, GCC 12 takes apart into scalars.
template <class S, class V>
struct Window {
  V x[4], dz[4];

  LOCKSTEP_INLINE Window(const void* image, int64_t at, int64_t width, const V& a, const V& b, V d) {
    constexpr int64_t B = lanes<V>;
    const V none{};
    x[0] = load<S, V>(image, at), x[1] = load<S, V>(image, at + B);
    x[2] = load<S, V>(image, at + width * B), x[3] = load<S, V>(image, at + (width + 1) * B);
    const V z0 = x[0] * a + b, z1 = x[1] * a + b, z2 = x[2] * a + b, z3 = x[3] * a + b;
    const V top = z1 > z0 ? z1 : z0, bottom = z3 > z2 ? z3 : z2;
    d = positive(bottom > top ? bottom : top, d);
    const V d_top = bottom > top ? none : d, d_bottom = bottom > top ? d : none;
    dz[0] = z1 > z0 ? none : d_top, dz[1] = z1 > z0 ? d_top : none;
    dz[2] = z3 > z2 ? none : d_bottom, dz[3] = z3 > z2 ? d_bottom : none;
  }
};

template <class S, class V>
LOCKSTEP_INLINE void backward_sums_pool(const void* x, const void* dy, int64_t height, int64_t width,
                                        const float* mean, const float* scale, const float* shift,
                                        double* sum, double* product) {
  constexpr int64_t B = lanes<V>;
  const V m = load<V>(mean), a = load<V>(scale), b = load<V>(shift);
  for (int64_t k = 0; k < B; ++k) sum[k] = product[k] = 0;
  int64_t in = 0;
  for (int64_t h = 0; h < height; h += 2) {
    for (int64_t begin = 0; begin < width; begin += kRun) {
      const int64_t end = std::min(width, begin + kRun);
      V s{}, q{};
      for (int64_t w = begin; w < end; w += 2, in += B) {
        const Window<S, V> window(x, (h * width + w) * B, width, a, b, load<S, V>(dy, in));
        for (int k = 0; k < 4; ++k) s += window.dz[k], q += window.dz[k] * (window.x[k] - m);
      }
      for (int64_t k = 0; k < B; ++k) sum[k] += s[k], product[k] += q[k];
    }
  }
}

template <class S, class V>
LOCKSTEP_INLINE void backward_apply_pool(const void* x, const void* dy, int64_t height, int64_t width,
                                         const float* scale, const float* shift, const float* ca,
                                         const float* cb, const float* cc, void* dx) {
  constexpr int64_t B = lanes<V>;
  const V a = load<V>(scale), b = load<V>(shift), p = load<V>(ca), q = load<V>(cb), r = load<V>(cc);
  int64_t in = 0;
  for (int64_t h = 0; h < height; h += 2)
    for (int64_t w = 0; w < width; w += 2, in += B) {
      const int64_t i = (h * width + w) * B;
      const Window<S, V> window(x, i, width, a, b, load<S, V>(dy, in));
      const int64_t out[4] = {i, i + B, i + width * B, i + (width + 1) * B};
      for (int k = 0; k < 4; ++k) store<S, V>(dx, out[k], p * window.dz[k] + q * window.x[k] + r);
    }
}

// dx = ca * dz + cb * x + cc.
template <class S, class V>
LOCKSTEP_INLINE void backward_apply(const void* x, const void* dz, bool relu, int64_t pixels,
                                    const float* scale, const float* shift, const float* ca, const float* cb,
                                    const float* cc, void* dx) {
  constexpr int64_t B = lanes<V>;
  const V a = load<V>(scale), b = load<V>(shift), p = load<V>(ca), q = load<V>(cb), r = load<V>(cc);
  for (int64_t i = 0; i < pixels; ++i) {
    const V v = load<S, V>(x, i * B);
    V d = load<S, V>(dz, i * B);
    if (relu) d = positive(v * a + b, d);
    store<S, V>(dx, i * B, p * d + q * v + r);
  }
}

#define LOCKSTEP_BOTH_BLOCKS(name, PARAMETERS, ARGUMENTS)                   \
  template <class S>                                                        \
  LOCKSTEP_INLINE void name##_of_16 PARAMETERS {                            \
    name<S, Float16> ARGUMENTS;                                             \
  }                                                                         \
  template <class S>                                                        \
  LOCKSTEP_INLINE void name##_of_8 PARAMETERS {                             \
    name<S, Float8> ARGUMENTS;                                              \
  }                                                                         \
  LOCKSTEP_EACH_STORAGE(name##_of_16, PARAMETERS, ARGUMENTS)                \
  LOCKSTEP_EACH_STORAGE(name##_of_8, PARAMETERS, ARGUMENTS)                 \
  auto name##_kernel(int64_t block, int storage) {                          \
    return (block == 16 ? name##_of_16_table : name##_of_8_table)[storage]; \
  }

LOCKSTEP_BOTH_BLOCKS(moments, (const void* x, int64_t pixels, const void* pivot, double* sum, double* square),
                     (x, pixels, pivot, sum, square))
LOCKSTEP_BOTH_BLOCKS(apply,
                     (const void* x, const void* residual, bool relu, int64_t pixels, const float* scale,
                      const float* shift, void* y),
                     (x, residual, relu, pixels, scale, shift, y))
LOCKSTEP_BOTH_BLOCKS(backward_sums,
                     (const void* x, const void* y, const void* dy, const void* dy2, bool relu, void* dz,
                      int64_t pixels, const float* mean, const float* scale, const float* shift, double* sum,
                      double* product),
                     (x, y, dy, dy2, relu, dz, pixels, mean, scale, shift, sum, product))
LOCKSTEP_BOTH_BLOCKS(backward_apply,
                     (const void* x, const void* dz, bool relu, int64_t pixels, const float* scale,
                      const float* shift, const float* ca, const float* cb, const float* cc, void* dx),
                     (x, dz, relu, pixels, scale, shift, ca, cb, cc, dx))
LOCKSTEP_BOTH_BLOCKS(apply_pool,
                     (const void* x, int64_t height, int64_t width, const float* scale, const float* shift,
                      void* y),
                     (x, height, width, scale, shift, y))
LOCKSTEP_BOTH_BLOCKS(backward_sums_pool,
                     (const void* x, const void* dy, int64_t height, int64_t width, const float* mean,
                      const float* scale, const float* shift, double* sum, double* product),
                     (x, dy, height, width, mean, scale, shift, sum, product))
LOCKSTEP_BOTH_BLOCKS(backward_apply_pool,
                     (const void* x, const void* dy, int64_t height, int64_t width, const float* scale,
                      const float* shift, const float* ca, const float* cb, const float* cc, void* dx),
                     (x, dy, height, width, scale, shift, ca, cb, cc, dx))
#undef LOCKSTEP_BOTH_BLOCKS

// partial(block, sample) for all samples, then finish(block), then use(block, sample): block by block on each
// thread where there are enough blocks, so that `use` finds its data in the cache; in three phases over all
// pairs where there are not.
template <class Partial, class Finish, class Use>
void by_channel_block(int64_t blocks, int64_t samples, const Partial& partial, const Finish& finish,
                      const Use& use) {
  if (blocks >= omp_get_max_threads()) {
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t n = 0; n < samples; ++n) partial(b, n);
      finish(b);
      for (int64_t n = samples - 1; n >= 0; --n) use(b, n);
    }
    return;
  }
#pragma omp parallel
  {
#pragma omp for collapse(2) schedule(static)
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t n = 0; n < samples; ++n) partial(b, n);
#pragma omp for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) finish(b);
#pragma omp for collapse(2) schedule(static)
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t n = 0; n < samples; ++n) use(b, n);
  }
}

// The same with `between` on the calling thread alone, once all partials are there.
template <class Partial, class Between, class Finish, class Use>
void in_phases(int64_t blocks, int64_t samples, const Partial& partial, const Between& between,
               const Finish& finish, const Use& use) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t n = 0; n < samples; ++n) partial(b, n);
  between();
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) finish(b);
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t n = 0; n < samples; ++n) use(b, n);
}

class BatchNormKernel final : public Kernel {
 public:
  BatchNormKernel(const nn::BatchNorm& op, const nn::Node& node, Lowering& low)
      : op_(op), node_(node), training_(low.training), B_(channel_block()) {
    const Shape in = low.graph.shape(node.inputs[0]);
    samples_ = in[0], channels_ = in[1], height_ = in[2], width_ = in[3], pixels_ = height_ * width_;
    blocks_ = (channels_ + B_ - 1) / B_;
    synchronized_ = op.sync && training_;
    if (synchronized_) across_.resize(2 * blocks_ * B_ + 1);
    md_ = low.canonical(in, low.type(node.output));
    x_ = low.convert(low.read(node.inputs[0]), md_);
    if (op.add) residual_ = low.convert(low.read(node.inputs[1]), md_);
    vectors_slot_ = low.scratch(sizeof(float) * kVectors * blocks_ * B_);
    partials_slot_ = low.scratch(sizeof(double) * 2 * samples_ * blocks_ * B_);
    y_md_ = low.canonical(node.output);
    y_ = low.make(node.output, y_md_);

    gamma_ = low.store.value(node.parameters[0]);
    beta_ = low.store.value(node.parameters[1]);
    dgamma_ = low.store.gradient(node.parameters[0]);
    dbeta_ = low.store.gradient(node.parameters[1]);
    running_mean_ = low.store.buffer(node.buffers[0]);
    running_var_ = low.store.buffer(node.buffers[1]);
    shard_mean_ = low.store.statistic(node.buffers[0]);
    shard_var_ = low.store.statistic(node.buffers[1]);
  }

  void lower_backward(Lowering& low) override {
    low.use(x_);
    low.use({md_, vectors_slot_});
    partials_backward_slot_ = low.scratch(sizeof(double) * 2 * samples_ * blocks_ * B_);
    if (op_.pool) {
      dy_ = low.gradient(node_.output, y_md_);
      if (low.wants_gradient(node_.inputs[0])) dx_ = low.make_gradient(node_.inputs[0], md_);
      return;
    }
    std::vector<Tensor> parts = low.gradients(node_.output);
    for (Tensor& t : parts) t = low.convert(t, md_);
    while (parts.size() > 2) {  // two are added on the fly, more are rare
      parts[parts.size() - 2] = low.sum(parts[parts.size() - 2], parts.back());
      parts.pop_back();
    }
    dy_ = parts[0];
    if (parts.size() > 1) dy2_ = parts[1];
    if (op_.add && op_.relu) low.use(y_);

    // dz is stored where somebody needs it: the residual branch, or the second pass when it is a sum.
    if (op_.add || dy2_.slot >= 0) {
      dz_ = low.exclusive(dy_) ? dy_ : Tensor{md_, low.scratch(md_.get_size())};
      if (op_.add) low.give_gradient(node_.inputs[1], dz_);
    }
    const Tensor& source = dz_.slot >= 0 ? dz_ : dy_;
    if (!low.wants_gradient(node_.inputs[0])) return;
    if (!op_.add && low.exclusive(source)) {
      dx_ = source;
      low.give_gradient(node_.inputs[0], dx_);
    } else {
      dx_ = low.make_gradient(node_.inputs[0], md_);
    }
  }

  void bind(const std::vector<Slot>& slots) override {
    auto floats = [&](int slot) { return slot < 0 ? nullptr : static_cast<float*>(slots[slot].address); };
    x_data_ = elements(slots, x_), y_data_ = elements(slots, y_), residual_data_ = elements(slots, residual_);
    dy_data_ = elements(slots, dy_), dy2_data_ = elements(slots, dy2_);
    dz_data_ = elements(slots, dz_), dx_data_ = elements(slots, dx_);
    vectors_ = floats(vectors_slot_);
    partials_ = reinterpret_cast<double*>(floats(partials_slot_));
    partials_backward_ = reinterpret_cast<double*>(floats(partials_backward_slot_));
  }

  void forward(const Pass& pass) override {
    const auto moments = moments_kernel(B_, x_data_.storage);
    const auto apply = apply_kernel(B_, x_data_.storage);
    const auto apply_pool = apply_pool_kernel(B_, x_data_.storage);
    auto partial = [&](int64_t b, int64_t n) {
      if (!training_) return;
      moments(x_data_.at(at(b, n)), pixels_, x_data_.at(at(b, 0)), sums(partials_, b, n, 0),
              sums(partials_, b, n, 1));
    };
    auto finish = [&](int64_t b) { finish_forward(b, pass.key.share); };
    auto use = [&](int64_t b, int64_t n) {
      const int64_t i = at(b, n);
      if (op_.pool)
        return apply_pool(x_data_.at(i), height_, width_, vector(kScale, b), vector(kShift, b),
                          y_data_.at(i / 4));
      apply(x_data_.at(i), residual_data_.at(i), op_.relu, pixels_, vector(kScale, b), vector(kShift, b),
            y_data_.at(i));
    };
    if (!synchronized_) return by_channel_block(blocks_, samples_, partial, finish, use);
    in_phases(
        blocks_, samples_, partial, [&] { sum_moments(pass); }, finish, use);
  }

  void forward_empty(const Pass& pass) override {
    if (!synchronized_) return;
    std::fill(across_.begin(), across_.end(), 0.0);
    pass.sum->sum(across_);
  }

  void backward(const Pass& pass) override {
    const int storage = x_data_.storage;
    const auto backward_sums = backward_sums_kernel(B_, storage);
    const auto backward_sums_pool = backward_sums_pool_kernel(B_, storage);
    const auto backward_apply = backward_apply_kernel(B_, storage);
    const auto backward_apply_pool = backward_apply_pool_kernel(B_, storage);
    auto partial = [&](int64_t b, int64_t n) {
      const int64_t i = at(b, n);
      double *sum = sums(partials_backward_, b, n, 0), *product = sums(partials_backward_, b, n, 1);
      if (op_.pool)
        return backward_sums_pool(x_data_.at(i), dy_data_.at(i / 4), height_, width_, vector(kMean, b),
                                  vector(kScale, b), vector(kShift, b), sum, product);
      backward_sums(x_data_.at(i), op_.add && op_.relu ? y_data_.at(i) : nullptr, dy_data_.at(i),
                    dy2_data_.at(i), op_.relu, dz_data_.at(i), pixels_, vector(kMean, b), vector(kScale, b),
                    vector(kShift, b), sum, product);
    };
    auto finish = [&](int64_t b) { finish_backward(b); };
    auto use = [&](int64_t b, int64_t n) {
      if (!dx_data_) return;
      const int64_t i = at(b, n);
      if (op_.pool)
        return backward_apply_pool(x_data_.at(i), dy_data_.at(i / 4), height_, width_, vector(kScale, b),
                                   vector(kShift, b), vector(kA, b), vector(kB, b), vector(kC, b),
                                   dx_data_.at(i));
      backward_apply(x_data_.at(i), dz_data_ ? dz_data_.at(i) : dy_data_.at(i), op_.relu && !dz_data_,
                     pixels_, vector(kScale, b), vector(kShift, b), vector(kA, b), vector(kB, b),
                     vector(kC, b), dx_data_.at(i));
    };
    if (!synchronized_) return by_channel_block(blocks_, samples_, partial, finish, use);
    in_phases(
        blocks_, samples_, partial, [&] { sum_gradients(pass); }, finish, use);
  }

  void backward_empty(const Pass& pass) override {
    if (!synchronized_) return;
    const std::span<double> sums(across_.data(), across_.size() - 1);
    std::ranges::fill(sums, 0.0);
    pass.sum->sum(sums);
  }

 private:
  // One float a channel each, kept from forward to backward.
  enum Vector { kMean, kInverse, kScale, kShift, kA, kB, kC, kVectors };

  int64_t at(int64_t block, int64_t sample) const { return (sample * blocks_ + block) * pixels_ * B_; }
  float* vector(Vector v, int64_t block) const { return vectors_ + (v * blocks_ + block) * B_; }
  double* sums(double* partials, int64_t block, int64_t sample, int which) const {
    return partials + ((block * samples_ + sample) * 2 + which) * B_;
  }
  void total(double* partials, int64_t block, double* first, double* second) const {
    std::fill(first, first + B_, 0.0);
    std::fill(second, second + B_, 0.0);
    for (int64_t n = 0; n < samples_; ++n)
      for (int64_t k = 0; k < B_; ++k) {
        first[k] += sums(partials, block, n, 0)[k];
        second[k] += sums(partials, block, n, 1)[k];
      }
  }

  // Statistics that span the devices: of each channel the sums of x and x^2 (in the backward pass, of dz and
  // dz * (x - mean)) over all of them, then the pixels that they have. About zero and not about the device's
  // pivot, which the others do not know; doubles bear it.
  void sum_moments(const Pass& pass) {
    const double count = static_cast<double>(samples_ * pixels_);
    for (int64_t b = 0; b < blocks_; ++b) {
      double sum[16], square[16];
      total(partials_, b, sum, square);
      for (int64_t k = 0; k < B_; ++k) {
        const double pivot = x_data_.get(at(b, 0) + k);
        double* mine = across_.data() + 2 * (b * B_ + k);
        mine[0] = sum[k] + count * pivot;
        mine[1] = square[k] + pivot * (2 * sum[k] + count * pivot);
      }
    }
    across_.back() = count;
    pass.sum->sum(across_);
  }
  void sum_gradients(const Pass& pass) {
    for (int64_t b = 0; b < blocks_; ++b) {
      double sum[16], product[16];
      total(partials_backward_, b, sum, product);
      parameter_gradients(b, sum, product);
      for (int64_t k = 0; k < B_; ++k) {
        across_[2 * (b * B_ + k)] = sum[k];
        across_[2 * (b * B_ + k) + 1] = product[k];
      }
    }
    pass.sum->sum(std::span<double>(across_.data(), across_.size() - 1));
  }
  void read_across(int64_t b, double* first, double* second) const {
    for (int64_t k = 0; k < B_; ++k) {
      first[k] = across_[2 * (b * B_ + k)];
      second[k] = across_[2 * (b * B_ + k) + 1];
    }
  }
  double count() const { return synchronized_ ? across_.back() : static_cast<double>(samples_ * pixels_); }

  void finish_forward(int64_t b, float share) {
    double sum[16], square[16];
    if (synchronized_)
      read_across(b, sum, square);
    else if (training_)
      total(partials_, b, sum, square);
    const double count = this->count();
    for (int64_t k = 0; k < B_; ++k) {
      const int64_t c = b * B_ + k;
      double mean = 0, var = 0;
      if (c < channels_) {
        if (training_) {
          const double off = sum[k] / count;  // from the pivot, the first pixel
          mean = (synchronized_ ? 0.0 : static_cast<double>(x_data_.get(at(b, 0) + k))) + off;
          var = std::max(0.0, square[k] / count - off * off);
          shard_mean_[c] = share * static_cast<float>(mean);
          shard_var_[c] = share * static_cast<float>(count > 1 ? var * count / (count - 1) : var);
        } else {
          mean = running_mean_[c];
          var = running_var_[c];
        }
      }
      const double inverse = 1.0 / std::sqrt(var + op_.eps);
      const double gamma = c < channels_ ? gamma_[c] : 0, beta = c < channels_ ? beta_[c] : 0;
      vector(kMean, b)[k] = static_cast<float>(mean);
      vector(kInverse, b)[k] = static_cast<float>(inverse);
      vector(kScale, b)[k] = static_cast<float>(gamma * inverse);
      vector(kShift, b)[k] = static_cast<float>(beta - mean * gamma * inverse);
    }
  }

  // Of this device's shard: they are summed over devices like all gradients.
  void parameter_gradients(int64_t b, const double* sum, const double* product) {
    for (int64_t k = 0; k < B_ && b * B_ + k < channels_; ++k) {
      dgamma_[b * B_ + k] = static_cast<float>(product[k] * vector(kInverse, b)[k]);
      dbeta_[b * B_ + k] = static_cast<float>(sum[k]);
    }
  }

  void finish_backward(int64_t b) {
    double sum[16], product[16];
    if (synchronized_) {
      read_across(b, sum, product);
    } else {
      total(partials_backward_, b, sum, product);
      parameter_gradients(b, sum, product);
    }
    const double count = this->count();
    for (int64_t k = 0; k < B_; ++k) {
      const double inverse = vector(kInverse, b)[k], scale = vector(kScale, b)[k], mean = vector(kMean, b)[k];
      const double slope = -scale * inverse * inverse * product[k] / count;
      vector(kA, b)[k] = static_cast<float>(scale);
      vector(kB, b)[k] = static_cast<float>(slope);
      vector(kC, b)[k] = static_cast<float>(-scale * sum[k] / count - slope * mean);
    }
  }

  const nn::BatchNorm op_;
  const nn::Node& node_;
  const bool training_;
  const int64_t B_;
  int64_t samples_ = 0, channels_ = 0, height_ = 0, width_ = 0, pixels_ = 0, blocks_ = 0;
  bool synchronized_ = false;
  std::vector<double> across_;  ///< kept from forward to backward for its last element
  memory::desc md_, y_md_;
  Tensor x_, residual_, y_, dy_, dy2_, dz_, dx_;
  int vectors_slot_ = -1, partials_slot_ = -1, partials_backward_slot_ = -1;
  Elements x_data_, y_data_, residual_data_, dy_data_, dy2_data_, dz_data_, dx_data_;
  float* vectors_ = nullptr;
  double *partials_ = nullptr, *partials_backward_ = nullptr;
  float *gamma_, *beta_, *dgamma_, *dbeta_, *running_mean_, *running_var_, *shard_mean_, *shard_var_;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::BatchNorm& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<BatchNormKernel>(op, node, low);
}

}  // namespace lockstep::device::cpu
