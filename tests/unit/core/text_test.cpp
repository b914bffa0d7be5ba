#include "core/text.h"

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "core/shape.h"

namespace lockstep {
namespace {

TEST(Text, CommasEveryThreeDigits) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-123456), "-123,456");
}

TEST(Text, BytesInTheLargestUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1610612736), "1.5 GiB");
  EXPECT_EQ(human_bytes(uint64_t{512} << 20), "512 MiB");
}

TEST(Text, TimeAsHoursMinutesSeconds) {
  EXPECT_EQ(human_time(3725), "01:02:05");
  EXPECT_EQ(human_time(59.6), "00:01:00");
  EXPECT_EQ(human_time(-1), "00:00:00");
  EXPECT_EQ(human_time(400000), "111:06:40");
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ((Shape{64, 3, 7, 7}).count(), 9408);
  EXPECT_EQ((Shape{64, 3, 7, 7}).text(), "[64, 3, 7, 7]");
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{5, 0}).count(), 0);
  EXPECT_EQ((Shape{2, 3})[-1], 3);
  EXPECT_NE((Shape{1}), Shape{});
}

TEST(Dtype, SizesAndNamesBelongTogether) {
  for (int i = 0; i <= static_cast<int>(Dtype::u64) + 1; ++i) {
    auto t = static_cast<Dtype>(i);
    std::string name = name_of(t), bits = std::to_string(8 * size_of(t));
    EXPECT_TRUE(name.ends_with(bits)) << name << " has " << bits << " bits";
  }
}

}  // namespace
}  // namespace lockstep
