// main() of GoogleTest programs under mpirun: all ranks run all tests; rank 0 reports, the others only
// failures.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "distributed/mpi_test.h"

namespace {

lockstep::comm::World* the_world = nullptr;

class FailuresOnly : public testing::EmptyTestEventListener {
  // GoogleTest holds its lock while it reports a failure: asking it for the current test there would never
  // return.
  void OnTestStart(const testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s: %s:%d\n%s\n", the_world->rank(), test_.c_str(),
                 result.file_name() ? result.file_name() : "", result.line_number(), result.message());
  }
  std::string test_;
};

}  // namespace

lockstep::comm::World& lockstep::test::world() { return *the_world; }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lockstep::comm::World world;
  world.set_timeout(60);
  the_world = &world;
  if (world.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  return RUN_ALL_TESTS();
}
