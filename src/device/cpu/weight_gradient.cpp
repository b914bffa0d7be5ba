#include "device/cpu/weight_gradient.h"

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/onednn.h"

namespace lockstep::device::cpu {

namespace {

constexpr int64_t B = 16;        // channels in a block
constexpr int64_t kChunk = 512;  // pixels that are multiplied at a time
constexpr int64_t kPixel = B * sizeof(uint16_t), kPair = 2 * kPixel;

// Of a thread: the pairs of a chunk (as many as pixels where samples have a single one), and its pixels.
constexpr int64_t kScratch = kChunk * (kPair + kPixel);

#define LOCKSTEP_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// Pixels of whole samples, or a part of one.
struct Chunk {
  int64_t sample, samples, first, pixels;
  int64_t pairs() const { return (pixels + 1) / 2; }
};

// The channels of two pixels that lie one after the other, side by side.
LOCKSTEP_BF16 inline __m512i pair_of(const uint16_t* pixel, bool both) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  return _mm512_permutexvar_epi16(order,
                                  both ? _mm512_loadu_si512(pixel) : _mm512_maskz_loadu_epi16(0xffff, pixel));
}

LOCKSTEP_BF16 void pair_pixels(const uint16_t* from, int64_t pixels, std::byte* to) {
  for (int64_t p = 0; p < pixels; p += 2, to += kPair)
    _mm512_store_si512(to, pair_of(from + p * B, p + 1 < pixels));
}

// Adds one chunk's products to a block of the weights, or begins it. `plane`: from the gradient's block to
// the one that is wanted next; the processor does not foresee that jump.
LOCKSTEP_BF16 void multiply(const Chunk& chunk, const std::byte* x, const uint16_t* dy, int64_t plane,
                            int64_t sample, bool begin, float* dw) {
  __m512 sum[B];
#pragma GCC unroll 16
  for (int64_t i = 0; i < B; ++i) sum[i] = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(dw + i * B);
  const auto add = [&](const __m512i& gradient, const std::byte* pairs) LOCKSTEP_BF16
      __attribute__((always_inline)) {
    const auto* words = reinterpret_cast<const int32_t*>(pairs);
#pragma GCC unroll 16
    for (int64_t i = 0; i < B; ++i)
      sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)gradient, (__m512bh)_mm512_set1_epi32(words[i]));
  };
  for (int64_t n = 0; n < chunk.samples; ++n, dy += sample) {
    const uint16_t* pixel = dy;
    for (int64_t k = 0; k < chunk.pixels / 2; ++k, pixel += 2 * B, x += kPair) {
      __builtin_prefetch(pixel + plane);
      add(pair_of(pixel, true), x);
    }
    if (chunk.pixels % 2) add(pair_of(pixel, false), x), x += kPair;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < B; ++i) _mm512_storeu_ps(dw + i * B, sum[i]);
}

// Of `count` things, what falls to one of `parts`.
struct Share {
  Share(int64_t count, int64_t part, int64_t parts)
      : begin(count * part / parts), end(count * (part + 1) / parts) {}
  int64_t begin, end;
};

// The pixels of x that a tap multiplies with output pixels first, first + 1, ...; zeros outside of x.
struct Tap {
  const WeightGradient::Axis &height, &width;
  int64_t row, column;

  bool in_place() const {
    return height.kernel == 1 && width.kernel == 1 && height.stride == 1 && width.stride == 1 &&
           height.padding == 0 && width.padding == 0;
  }
  void gather(const uint16_t* x, int64_t first, int64_t pixels, uint16_t* to) const {
    const int64_t left = column * width.dilation - width.padding;  // in x, of the first output pixel of a row
    // Output columns whose pixel is within x.
    const int64_t begin = std::clamp<int64_t>((-left + width.stride - 1) / width.stride, 0, width.out);
    const int64_t end =
        std::clamp<int64_t>((width.in - 1 - left + width.stride) / width.stride, begin, width.out);
    for (int64_t done = 0; done < pixels;) {
      const int64_t h = (first + done) / width.out, w = (first + done) % width.out;
      const int64_t until = std::min(width.out, w + pixels - done);
      const int64_t y = h * height.stride - height.padding + row * height.dilation;
      const bool inside = y >= 0 && y < height.in;
      const int64_t a = std::clamp(inside ? begin : until, w, until),
                    b = std::clamp(inside ? end : until, a, until);
      std::memset(to, 0, (a - w) * kPixel);
      const uint16_t* from = x + (y * width.in + left) * B;
      if (width.stride == 1) {
        std::memcpy(to + (a - w) * B, from + a * B, (b - a) * kPixel);
      } else {
        for (int64_t i = a; i < b; ++i) std::memcpy(to + (i - w) * B, from + i * width.stride * B, kPixel);
      }
      std::memset(to + (b - w) * B, 0, (until - b) * kPixel);
      to += (until - w) * B;
      done += until - w;
    }
  }
};

}  // namespace

bool WeightGradient::pays() {
  return runs(dnnl::cpu_isa::avx512_core_bf16) && !runs(dnnl::cpu_isa::avx512_core_amx);
}

size_t WeightGradient::scratch_bytes(int threads) { return static_cast<size_t>(threads * kScratch); }

void WeightGradient::run(const uint16_t* x, const uint16_t* dy, float* dw, std::byte* scratch) const {
  const int64_t pixels = height.out * width.out, pixels_in = height.in * width.in;
  const int64_t taps = height.kernel * width.kernel;
  const int64_t whole = std::clamp<int64_t>(kChunk / pixels, 1, samples);
#pragma omp parallel
  {
    // A grid of threads over the weights: as many rows of it as there are input blocks to go round.
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    int64_t rows = std::min(threads, inputs);
    while (threads % rows) --rows;
    const Share mine(inputs, me % rows, rows), others(outputs, me / rows, threads / rows);
    std::byte* pairs = scratch + me * kScratch;
    auto* gathered = reinterpret_cast<uint16_t*>(pairs + kChunk * kPair);
    for (int64_t sample = 0; sample < samples; sample += whole)
      for (int64_t first = 0; first < pixels; first += kChunk) {
        const Chunk chunk{sample, std::min(whole, samples - sample), first, std::min(kChunk, pixels - first)};
        for (int64_t i = mine.begin; i < mine.end; ++i)
          for (int64_t t = 0; t < taps; ++t) {
            const Tap tap{height, width, t / width.kernel, t % width.kernel};
            for (int64_t n = 0; n < chunk.samples; ++n) {
              const uint16_t* from = x + ((sample + n) * inputs + i) * pixels_in * B;
              if (!tap.in_place()) tap.gather(from, first, chunk.pixels, gathered);
              pair_pixels(tap.in_place() ? from + first * B : gathered, chunk.pixels,
                          pairs + n * chunk.pairs() * kPair);
            }
            for (int64_t o = others.begin; o < others.end; ++o)
              multiply(chunk, pairs, dy + ((sample * outputs + o) * pixels + first) * B, pixels * B,
                       outputs * pixels * B, sample == 0 && first == 0,
                       dw + ((o * inputs + i) * taps + t) * B * B);
          }
      }
  }
}

}  // namespace lockstep::device::cpu
