// formula.h must give the bits of formula.py: the constants below were printed by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden/formula.h"

namespace lockstep::golden {
namespace {

using testing::ElementsAre;

TEST(GoldenFormula, WordsAndUnitsAreThoseOfTheScript) {
  const Formula f("fc.weight");
  EXPECT_THAT((std::array{f.word(0), f.word(1), f.word(2), f.word(3)}),
              ElementsAre(0x2fcd0114u, 0x1ed690fcu, 0x5e20d1afu, 0x8e29d875u));
  EXPECT_THAT((std::array{f.unit(0), f.unit(1), f.unit(2)}),
              ElementsAre(-0x1.40cbfcp-1f, -0x1.84a5cp-1f, -0x1.0ef978p-2f));
}

TEST(GoldenFormula, ParametersAreThoseOfTheScript) {
  const std::vector<float> weight = parameter("fc.weight", {2, 2, 3}, false);
  ASSERT_EQ(weight.size(), 12u);
  EXPECT_THAT((std::array{weight[0], weight[5], weight[11]}),
              ElementsAre(-0x1.40cbfcp-1f, -0x1.3dfeccp-1f, -0x1.b313c8p-2f));
  EXPECT_THAT(parameter("bn1.weight", {3}, true), ElementsAre(0x1.0dae8p-1f, 0x1.2be0d6p-1f, 0x1.226d8ap-1f));
  EXPECT_THAT(parameter("bn1.bias", {8}, true),
              ElementsAre(0x1.1a5e7p+0f, -0x1.aa2004p-1f, -0x1.f2ab08p-1f, 0x1.b3eb28p-1f, 0x1.05bb18p+0f,
                          -0x1.2eaa58p+0f, 0x1.db670cp-1f, 0x1.b566ap-1f));
  EXPECT_THAT(parameter("fc.bias", {2}, false), ElementsAre(0x1.dc134p-7f, -0x1.a93b8p-8f));
}

TEST(GoldenFormula, SamplesAndProjectionsAreThoseOfTheScript) {
  EXPECT_THAT(sample_indices("fc.weight", 5130, 4), ElementsAre(4175, 2508, 1412, 1749));
  EXPECT_EQ(projection("fc.weight", std::array<float, 5>{0, 1, 2, 3, 4}.data(), 5), 0x1.4a6106p+0);
}

TEST(GoldenFormula, ImagesAndLabelsAreThoseOfTheScript) {
  const std::vector<int32_t> y = labels("a/1", 4, 10);
  EXPECT_THAT(y, ElementsAre(1, 8, 9, 5));
  const std::vector<float> x = images("a/1", {1, 2, 2}, y);
  ASSERT_EQ(x.size(), 16u);
  EXPECT_EQ(x[0], -0x1.09512p-3f);
  EXPECT_EQ(x[13], 0x1.982cp-9f);
}

}  // namespace
}  // namespace lockstep::golden
