#include "app/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace lockstep::app {
namespace {

using testing::HasSubstr;

std::string refusal(const train::BatchOptions& batch, int64_t devices) {
  try {
    resolve_batch(batch, devices);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Batch, GivenValuesFixTheRest) {
  struct Case {
    train::BatchOptions given;
    int64_t devices;
    train::BatchPlan plan;
  };
  const Case cases[] = {
      // micro, global, accumulation    devices   micro, global, accumulation, shards, world_dependent
      {{}, 1, {16, 128, 8, 8, false}},
      {{}, 2, {16, 128, 4, 8, false}},
      {{}, 3, {16, 96, 2, 6, true}},
      {{}, 4, {16, 128, 2, 8, false}},
      {{}, 5, {16, 80, 1, 5, true}},
      {{}, 6, {16, 96, 1, 6, true}},
      {{}, 7, {16, 112, 1, 7, true}},
      {{}, 8, {16, 128, 1, 8, false}},
      {{}, 16, {16, 256, 1, 16, true}},
      {{.micro = 32}, 2, {32, 128, 2, 4, false}},
      {{.micro = 10}, 1, {10, 80, 8, 8, false}},  // a power of two of shards, for the exact tree
      {{.micro = 10}, 4, {10, 80, 2, 8, false}},
      {{.micro = 24}, 1, {24, 96, 4, 4, true}},
      {{.micro = 100}, 1, {100, 100, 1, 1, true}},
      {{.micro = 256}, 2, {256, 512, 1, 2, true}},
      {{.global = 64}, 2, {16, 64, 2, 4, false}},
      {{.global = 8}, 1, {8, 8, 1, 1, false}},
      {{.accumulation = 3}, 2, {16, 96, 3, 6, true}},
      {{.micro = 8, .global = 64}, 4, {8, 64, 2, 8, false}},
      {{.micro = 8, .accumulation = 2}, 4, {8, 64, 2, 8, true}},
      {{.global = 64, .accumulation = 2}, 4, {8, 64, 2, 8, false}},
      {{.micro = 8, .global = 64, .accumulation = 2}, 4, {8, 64, 2, 8, false}},
  };
  for (const Case& c : cases) {
    const train::BatchPlan plan = resolve_batch(c.given, c.devices);
    const auto fields = [](const train::BatchPlan& p) {
      return std::tuple(p.micro, p.global, p.accumulation, p.shards, p.world_dependent);
    };
    EXPECT_EQ(fields(plan), fields(c.plan))
        << "micro " << c.given.micro << " global " << c.given.global << " accumulation "
        << c.given.accumulation << " devices " << c.devices;
  }
}

TEST(Batch, WhatDoesNotDivideIsShownWithWhatWould) {
  std::string text = refusal({.micro = 16, .global = 100}, 2);
  EXPECT_THAT(text, HasSubstr("batch.global '100' cannot be shared out on '2' devices"));
  EXPECT_THAT(text, HasSubstr("the known factors give '32'"));
  EXPECT_THAT(text, HasSubstr("batch.global '96', '128'"));
  EXPECT_THAT(text, HasSubstr("batch.micro '10', '25'"));
  EXPECT_THAT(text, Not(HasSubstr("; or devices"))) << "16 does not divide 100 on any number of devices";

  text = refusal({.global = 128}, 3);
  EXPECT_THAT(text, HasSubstr("batch.global '96', '144'"));
  EXPECT_THAT(text, HasSubstr("devices '2', '4', '1', '8'"));

  text = refusal({.micro = 8, .global = 64, .accumulation = 4}, 4);
  EXPECT_THAT(text,
              HasSubstr("batch.global '128'; or batch.micro '4'; or batch.accumulation '2'; or devices '2'"));

  EXPECT_THAT(refusal({.global = 64, .accumulation = 3}, 2),
              HasSubstr("batch.accumulation '2', '4', '1', '8'"));
  EXPECT_THAT(refusal({.global = 8}, 2), HasSubstr("batch.micro '4', '2', '1'"));
}

TEST(Batch, EverySuggestionWorks) {
  for (int64_t devices : {1, 2, 3, 5, 8})
    for (int64_t global : {1, 7, 8, 96, 100, 128})
      for (int64_t micro : {0, 1, 3, 16})
        for (int64_t accumulation : {0, 1, 4}) {
          const train::BatchOptions given{micro, global, accumulation};
          const std::string text = refusal(given, devices);
          if (text.empty()) continue;
          const auto try_first = [&](const std::string& key, auto change) {
            const std::string todo = text.substr(text.find("these would do"));
            size_t at = todo.find(key + " '");
            if (at == std::string::npos) return;
            at += key.size() + 2;
            train::BatchOptions changed = given;
            int64_t count = devices;
            change(changed, count, std::stoll(todo.substr(at)));
            EXPECT_EQ(refusal(changed, count), "") << key << " of: " << text;
          };
          try_first("batch.global", [](auto& b, auto&, int64_t v) { b.global = v; });
          try_first("batch.micro", [](auto& b, auto&, int64_t v) { b.micro = v; });
          try_first("batch.accumulation", [](auto& b, auto&, int64_t v) { b.accumulation = v; });
          try_first("devices", [](auto&, auto& count, int64_t v) { count = v; });
        }
}

TEST(Batch, ExactReductionNeedsAPowerOfTwoOfDevices) {
  check_exact({.micro = 16, .global = 128, .accumulation = 2, .shards = 8}, 4);
  try {
    check_exact({.micro = 16, .global = 96, .accumulation = 2, .shards = 6}, 3);
    FAIL() << "6 shards on 3 devices were taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'6' shards on '3' devices"));
    EXPECT_THAT(error.what(), HasSubstr("use '1', '2' devices for this batch"));
    EXPECT_THAT(error.what(), HasSubstr("--reduction fast"));
  }
  check_exact({.micro = 8, .global = 24, .accumulation = 3, .shards = 3}, 1);
  check_exact({.micro = 8, .global = 96, .accumulation = 3, .shards = 12}, 4);
}

}  // namespace
}  // namespace lockstep::app
