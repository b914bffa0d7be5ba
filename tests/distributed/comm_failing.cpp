// comm_failing HOW [SECONDS]: ranks that fail in one way. comm_failure_test.cpp watches them from outside.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/world.h"
#include "core/error.h"

using namespace lockstep;

static void run(comm::World& world, const std::string& how, double timeout) {
  world.set_timeout(timeout);
  const bool last = world.rank() == world.size() - 1;
  if (how == "setup") {
    world.together([&] {
      if (world.rank() % 2 == 1) throw UserError("no file 'a.h5'", "it does not exist", "check data.train");
    });
  }
  comm::CollectiveOptions options{.timeout = timeout};
  if (how == "hang-messages") options.shared_memory = false;
  if (how == "hang-fast" || how == "hang-compressed") options.reduction = comm::Reduction::fast;
  if (how == "hang-compressed") options.compress = Dtype::bf16;
  auto collective = comm::make_collective(world, options);
  std::vector<float> x(100'000, 1.0f);
  auto submit = [&] { return collective->all_reduce(std::span<float>(x), options.compress); };
  for (int i = 0; i < 6; ++i) submit().wait();
  if (last && how == "throw")
    throw UserError("label '11' in row '5'", "the model has '10' classes", "check the data");
  if (last && how == "bug") throw std::runtime_error("index out of range");
  if (last && how == "world-hang") sleep(600);
  if (how == "world-hang") world.barrier();
  if (how == "world-mixed") last ? world.barrier() : static_cast<void>(world.any(true));
  if (last && how == "stop") raise(SIGSTOP);
  if (last && how.starts_with("hang")) sleep(600);
  submit().wait();
}

int main(int argc, char** argv) {
  try {
    comm::World world;
    try {
      run(world, argc > 1 ? argv[1] : "", argc > 2 ? std::atof(argv[2]) : 300);
      return 0;
    } catch (const std::exception& e) {
      world.fail(e);
    }
  } catch (const Error& e) {  // no world
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  }
}
