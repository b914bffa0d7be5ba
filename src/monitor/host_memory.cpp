#include "monitor/host_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::monitor {

// A line of `file` such as "VmHWM:    1234 kB"; 0 when there is none.
static uint64_t kib_line(const char* file, const char* key) {
  char text[8192];
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* at = std::strstr(text, key);
  return at ? std::strtoull(at + std::strlen(key), nullptr, 10) * 1024 : 0;
}

uint64_t host_bytes() { return kib_line("/proc/self/status", "VmRSS:"); }

uint64_t peak_host_bytes() {
  if (uint64_t bytes = kib_line("/proc/self/status", "VmHWM:")) return bytes;
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// proc(5), /proc/PID/clear_refs.
bool reset_peak_host_bytes() {
  return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << 5 << std::flush);
}

// A file that holds one number; `missing` where it does not ("max", no such file).
static uint64_t number_in(const std::filesystem::path& file, uint64_t missing) {
  uint64_t value = 0;
  return std::ifstream(file) >> value ? value : missing;
}

uint64_t available_host_bytes() {
  uint64_t least = kib_line("/proc/meminfo", "MemAvailable:");
  std::string group;
  std::ifstream groups("/proc/self/cgroup");
  while (std::getline(groups, group) && !group.starts_with("0::/")) {
  }
  if (!group.starts_with("0::/")) return least;
  // A limit may stand in any group above ours.
  const std::filesystem::path top = "/sys/fs/cgroup";
  for (std::filesystem::path at = (top / group.substr(4)).lexically_normal();; at = at.parent_path()) {
    const uint64_t limit = number_in(at / "memory.max", UINT64_MAX),
                   used = number_in(at / "memory.current", 0);
    least = std::min(least, limit - std::min(limit, used));
    if (at == top || !at.has_relative_path()) return least;
  }
}

}  // namespace lockstep::monitor
