// What the whole process allocates with `new`, and its page faults. For one source file of a program.
#pragma once

#include <dlfcn.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lockstep::test {

/// Of all threads. oneDNN makes a map of its arguments at each call, a few dozen bytes each: these are in
/// `largest_allocation` alone.
inline std::atomic<int64_t> allocations{0}, largest_allocation{0};

inline void* counted(size_t bytes, void* caller) {
  Dl_info from;
  if (!dladdr(caller, &from) || !std::strstr(from.dli_fname, "libdnnl")) ++allocations;
  int64_t seen = largest_allocation;
  while (static_cast<int64_t>(bytes) > seen &&
         !largest_allocation.compare_exchange_weak(seen, static_cast<int64_t>(bytes))) {
  }
  return std::malloc(bytes);
}

inline void* counted_or_throw(size_t bytes, void* caller) {
  if (void* p = counted(bytes, caller)) return p;
  throw std::bad_alloc();
}

/// Pages touched for the first time, by all threads so far.
inline int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace lockstep::test

void* operator new(size_t bytes) {
  return lockstep::test::counted_or_throw(bytes, __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return lockstep::test::counted_or_throw(bytes, __builtin_return_address(0));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return lockstep::test::counted(bytes, __builtin_return_address(0));
}
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
