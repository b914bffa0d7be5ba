#include "monitor/host_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep::monitor {

// A line of /proc/self/status such as "VmHWM:    1234 kB"; 0 when there is none.
static uint64_t status_bytes(const char* key) {
  char text[8192];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* at = std::strstr(text, key);
  return at ? std::strtoull(at + std::strlen(key), nullptr, 10) * 1024 : 0;
}

uint64_t host_bytes() { return status_bytes("VmRSS:"); }

uint64_t peak_host_bytes() {
  if (uint64_t bytes = status_bytes("VmHWM:")) return bytes;
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace lockstep::monitor
