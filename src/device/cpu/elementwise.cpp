#include "device/cpu/elementwise.h"

#include <algorithm>

namespace lockstep::device::cpu {

namespace {

// f(i) for a vector at i while there are enough elements, then for single ones.
#define LOCKSTEP_ALONG(count, V, i, ...)           \
  {                                                \
    int64_t i = 0;                                 \
    {                                              \
      using V = Float16;                           \
      for (; i + 16 <= count; i += 16) __VA_ARGS__ \
    }                                              \
    using V = float;                               \
    for (; i < count; ++i) __VA_ARGS__             \
  }

template <class V>
LOCKSTEP_INLINE V relu_of(const V& v) {
  const V none{};
  return v < none ? none : v;
}

template <class S>
LOCKSTEP_INLINE void relu_piece(const void* x, void* to, int64_t count) {
  LOCKSTEP_ALONG(count, V, i, { store<S, V>(to, i, relu_of(load<S, V>(x, i))); })
}

template <class S>
LOCKSTEP_INLINE void add_piece(const void* a, const void* b, bool relu, void* to, int64_t count) {
  LOCKSTEP_ALONG(count, V, i, {
    const V sum = load<S, V>(a, i) + load<S, V>(b, i);
    store<S, V>(to, i, relu ? relu_of(sum) : sum);
  })
}

template <class S>
LOCKSTEP_INLINE void where_positive_piece(const void* y, const void* d, void* to, int64_t count) {
  LOCKSTEP_ALONG(count, V, i, {
    const V none{};
    const V there = load<S, V>(d, i);
    store<S, V>(to, i, load<S, V>(y, i) > none ? there : none);
  })
}

template <class S>
LOCKSTEP_INLINE void widen_piece(const void* from, void* to, int64_t count) {
  LOCKSTEP_ALONG(count, V, i, { store<F32, V>(to, i, load<S, V>(from, i)); })
}

template <class S>
LOCKSTEP_INLINE void narrow_piece(const void* from, void* to, int64_t count) {
  LOCKSTEP_ALONG(count, V, i, { store<S, V>(to, i, load<F32, V>(from, i)); })
}

template <class S>
LOCKSTEP_INLINE void round_piece(float* x, int64_t count) {
  if constexpr (!std::is_same_v<S, F32>)
    LOCKSTEP_ALONG(count, V, i,
                   { store<F32, V>(x, i, S::template widen<V>(S::template narrow<V>(load<F32, V>(x, i)))); })
}

LOCKSTEP_EACH_STORAGE(relu_piece, (const void* x, void* to, int64_t count), (x, to, count))
LOCKSTEP_EACH_STORAGE(add_piece, (const void* a, const void* b, bool relu, void* to, int64_t count),
                      (a, b, relu, to, count))
LOCKSTEP_EACH_STORAGE(where_positive_piece, (const void* y, const void* d, void* to, int64_t count),
                      (y, d, to, count))
LOCKSTEP_EACH_STORAGE(widen_piece, (const void* from, void* to, int64_t count), (from, to, count))
LOCKSTEP_EACH_STORAGE(narrow_piece, (const void* from, void* to, int64_t count), (from, to, count))
LOCKSTEP_EACH_STORAGE(round_piece, (float* x, int64_t count), (x, count))

template <class F>
void by_piece(int64_t count, const F& f) {
  constexpr int64_t kPiece = 1 << 13;
  const int64_t pieces = (count + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < pieces; ++i) f(i * kPiece, std::min(kPiece, count - i * kPiece));
}

}  // namespace

void relu(const Elements& x, const Elements& to, int64_t count) {
  by_piece(count, [&](int64_t at, int64_t n) { relu_piece_table[x.storage](x.at(at), to.at(at), n); });
}

void add(const Elements& a, const Elements& b, bool relu, const Elements& to, int64_t count) {
  by_piece(count, [&](int64_t at, int64_t n) {
    add_piece_table[a.storage](a.at(at), b.at(at), relu, to.at(at), n);
  });
}

void where_positive(const Elements& y, const Elements& d, const Elements& to, int64_t count) {
  by_piece(count, [&](int64_t at, int64_t n) {
    where_positive_piece_table[y.storage](y.at(at), d.at(at), to.at(at), n);
  });
}

void cast(const Elements& from, const Elements& to, int64_t count) {
  by_piece(count, [&](int64_t at, int64_t n) {
    if (to.storage == 0) {
      widen_piece_table[from.storage](from.at(at), to.at(at), n);
    } else {
      narrow_piece_table[to.storage](from.at(at), to.at(at), n);
    }
  });
}

void round_to(memory::data_type type, float* x, int64_t count) {
  const int storage = storage_of(type);
  by_piece(count, [&](int64_t at, int64_t n) { round_piece_table[storage](x + at, n); });
}

}  // namespace lockstep::device::cpu
