// Command lines, environments and files for the tests of the job.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/job.h"
#include "core/error.h"

namespace lockstep::app {

using Words = std::vector<std::string>;

inline Invocation parse(const Words& arguments, const Words& environment = {},
                        const std::string& quickstart = "") {
  std::vector<const char*> argv = {"trainer"}, env;
  for (const std::string& a : arguments) argv.push_back(a.c_str());
  for (const std::string& e : environment) env.push_back(e.c_str());
  env.push_back(nullptr);
  return parse(static_cast<int>(argv.size()), argv.data(), env.data(), quickstart);
}

/// The whole text of the UserError that these arguments give; "" when they give none.
inline std::string refusal(const Words& arguments, const Words& environment = {}) {
  try {
    parse(arguments, environment);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// A folder of its own for each test, gone afterwards.
class JobTest : public testing::Test {
 protected:
  JobTest() { std::filesystem::create_directories(folder_); }
  ~JobTest() override { std::filesystem::remove_all(folder_); }

  /// Writes a file and returns its absolute path.
  std::string file(const std::string& name, const std::string& content = "") {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return path.string();
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        (std::string("lockstep_job_") + std::to_string(getpid()) + "_" +
                                         testing::UnitTest::GetInstance()->current_test_info()->name());
};

}  // namespace lockstep::app
