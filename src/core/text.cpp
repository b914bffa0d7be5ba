#include "core/text.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep {

std::string with_commas(int64_t n) {
  std::string digits = fmt::format("{}", n < 0 ? -n : n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return (n < 0 ? "-" : "") + digits;
}

std::string human_bytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

std::string human_time(double seconds) {
  auto s = static_cast<int64_t>(std::llround(seconds < 0 ? 0 : seconds));
  return fmt::format("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string printable(const std::string& text, size_t most) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
    if (shown.size() >= most) return shown + "...";
  }
  return shown;
}

}  // namespace lockstep
