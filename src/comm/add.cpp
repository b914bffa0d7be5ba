#include "comm/algorithm.h"

namespace lockstep::comm {

namespace {

template <class T>
void add_as(void* sum, const void* a, const void* b, size_t bytes) {
  auto* s = static_cast<T*>(sum);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const size_t n = bytes / sizeof(T);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) s[i] = x[i] + y[i];
}

}  // namespace

void add_into(Dtype dtype, void* sum, const void* a, const void* b, size_t bytes) {
  if (dtype == Dtype::f64)
    add_as<double>(sum, a, b, bytes);
  else
    add_as<float>(sum, a, b, bytes);
}

void add(Dtype dtype, void* a, const void* b, size_t bytes) { add_into(dtype, a, a, b, bytes); }

}  // namespace lockstep::comm
