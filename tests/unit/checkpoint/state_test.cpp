#include "checkpoint/state.h"

#include <cmath>
#include <limits>

#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

const std::vector<FileRecord> kFiles{{"model.safetensors", 1234, 0xfedcba9876543210},
                                     {"optimizer.safetensors", 0, 5}};

State full_state() {
  State s = make_snapshot(123).state;
  s.skipped_steps = 4;
  s.versions = {{"lockstep", "0.1.0"}};
  s.values = {{"a", 0.1}, {"b", 65536}, {"c", 0x1.fffffffffffffp-3}, {"d", -INFINITY}, {"e", 5e-324}};
  s.metric = Metric{"loss", 1.0 / 3, false};
  s.ranks = 8;
  s.replicas = 2;
  s.job = "[data]\ntrain = \"a\\b\"\n# \xc3\xa9\n";
  return s;
}

TEST(StateText, ComesBackBitForBit) {
  ParsedState parsed = parse_state(state_text(full_state(), kFiles));
  EXPECT_EQ(parsed.state, full_state());
  EXPECT_EQ(parsed.files, kFiles);
}

TEST(StateText, KeepsSeedsBeyond53Bits) {
  State s;
  s.seed = UINT64_MAX;
  s.values["nan"] = std::numeric_limits<double>::quiet_NaN();
  State back = parse_state(state_text(s, {})).state;
  EXPECT_EQ(back.seed, UINT64_MAX);
  EXPECT_TRUE(std::isnan(back.values["nan"]));
}

TEST(StateText, ProvesItselfAsTheDocumentationSays) {
  std::string text = state_text(full_state(), kFiles);
  size_t at = text.rfind("\"xxh3\": \"") + 9;
  std::string stated = text.substr(at, 16);
  text.replace(at, 16, 16, '0');
  EXPECT_EQ(hex64(xxh3(std::as_bytes(std::span(text)))), stated);
  EXPECT_THAT(text, HasSubstr("\"state.json\": {\n   \"bytes\": " + std::to_string(text.size()) + ","));
}

TEST(StateText, StatesItsSizeAtEveryNumberOfDigits) {
  const size_t rest = state_text({}, {}).size();
  ASSERT_LT(rest, 980u);
  for (size_t boundary : {1000, 10000})
    for (size_t bytes = boundary - 20; bytes < boundary + 20; ++bytes) {
      State s;
      s.job.assign(bytes - rest, 'x');
      ASSERT_EQ(parse_state(state_text(s, {})).state.job.size(), bytes - rest);
    }
}

TEST(StateText, EveryFlippedBitIsFound) {
  const std::string text = state_text(full_state(), kFiles);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_THROW(parse_state(damaged), std::runtime_error) << "byte " << i;
  }
}

TEST(StateText, EveryTruncationIsFound) {
  const std::string text = state_text(full_state(), kFiles);
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_THROW(parse_state(text.substr(0, bytes)), std::runtime_error) << bytes;
}

}  // namespace
}  // namespace lockstep::checkpoint
