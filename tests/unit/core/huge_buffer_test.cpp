#include "core/huge_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

TEST(HugeBuffer, IsZeroedAndAligned) {
  for (size_t bytes : {size_t{1}, size_t{5000}, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    HugeBuffer buffer(bytes);
    ASSERT_EQ(buffer.bytes(), bytes);
    const size_t alignment = bytes >= (size_t{2} << 20) ? size_t{2} << 20 : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u);
    auto all = buffer.as<std::byte>();
    EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{0}; }));
    std::ranges::fill(all, std::byte{0xff});
  }
}

TEST(HugeBuffer, OfNoBytesHoldsNothing) {
  HugeBuffer buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_TRUE(buffer.as<float>().empty());
}

TEST(HugeBuffer, MovesWithItsContents) {
  HugeBuffer a(4096);
  a.as<int>()[5] = 42;
  HugeBuffer b = std::move(a);
  EXPECT_EQ(b.as<int>()[5], 42);
  HugeBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.as<int>()[5], 42);
}

}  // namespace
}  // namespace lockstep
