// Preloaded into trainers, it makes the disk of one of them lie: on rank $BAD_READ_RANK read $BAD_READ of
// $BAD_READ_BYTES bytes, counted from 1, gives other bytes.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

static long number(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atol(value) : 0;
}

extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  static std::atomic<long> reads = 0;
  const ssize_t got = syscall(SYS_pread64, file, to, bytes, offset);
  if (got != number("BAD_READ_BYTES") || number("OMPI_COMM_WORLD_RANK") != number("BAD_READ_RANK"))
    return got;
  if (++reads == number("BAD_READ"))
    for (ssize_t i = 0; i < got; ++i) static_cast<unsigned char*>(to)[i] ^= 0xff;
  return got;
}

extern "C" ssize_t pread64(int file, void* to, size_t bytes, off_t offset) {
  return pread(file, to, bytes, offset);
}
