// Numbers and texts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

std::string with_commas(int64_t n);       ///< 1234567 -> "1,234,567"
std::string human_bytes(uint64_t bytes);  ///< 1610612736 -> "1.5 GiB"
std::string human_time(double seconds);   ///< 3725 -> "01:02:05"
/// What a message may show of anyone's text: control bytes as \x1b, and no more than `most` bytes.
std::string printable(const std::string& text, size_t most = 300);

}  // namespace lockstep
