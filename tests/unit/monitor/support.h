// A scratch directory for the tests of this room.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "core/error.h"

namespace lockstep::monitor {

namespace fs = std::filesystem;

class Scratch : public ::testing::Test {
 protected:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~Scratch() override { fs::remove_all(dir_); }
  fs::path dir_;
};

inline std::string read_text(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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

}  // namespace lockstep::monitor
