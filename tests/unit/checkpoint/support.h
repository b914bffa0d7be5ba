// A scratch directory and small snapshots for the tests of this room.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/file.h"
#include "checkpoint/save.h"
#include "core/error.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

/// A fixture with an empty directory of its own, removed afterwards.
class Scratch : public ::testing::Test {
 protected:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~Scratch() override { fs::remove_all(dir_); }
  fs::path dir_;
};

inline void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A snapshot whose every value depends on `step`.
inline Snapshot make_snapshot(int64_t step) {
  Snapshot s;
  s.state.step = step;
  s.state.epoch = step / 10;
  s.state.batch = step % 10;
  s.state.seed = 0xfedcba9876543210;
  s.state.shards = 8;
  s.state.micro_batch = 16;
  s.state.job = "[model]\nname = cnn\n";
  s.state.data = {{"train.h5", "0123456789abcdef"}};
  s.model.layout({{"fc.weight", {10, 4}}, {"fc.bias", {10}}, {"bn.count", {}, Dtype::i64}});
  s.optimizer.layout({{"momentum.fc.weight", {10, 4}}, {"momentum.fc.bias", {10}}});
  for (size_t t : {0, 1}) {
    for (size_t i = 0; auto& v : s.model.as<float>(t))
      v = static_cast<float>(step) + 0.25f * static_cast<float>(i++);
    for (size_t i = 0; auto& v : s.optimizer.as<float>(t))
      v = -static_cast<float>(step * 3 + static_cast<int64_t>(i++));
  }
  s.model.as<int64_t>(2)[0] = step;
  return s;
}

/// The UserError that `action` throws; fails the test when it throws none.
inline UserError error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& e) {
    return e;
  }
  ADD_FAILURE() << "no UserError was thrown";
  return UserError("", "", "");
}

}  // namespace lockstep::checkpoint
