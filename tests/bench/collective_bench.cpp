// mpirun -np N collective_bench [MIB...]: one all_reduce by size, every path interleaved in one run, the
// median of rank 0, and its ratio to a blocking MPI_Allreduce of the same vector. MIB, algbw and busbw count
// fp32, also where half of it crosses.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/collective.h"
#include "comm/mpi.h"
#include "comm/world.h"
#include "core/huge_buffer.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

void bench(comm::World& world, double mib) {
  const auto count = static_cast<size_t>(mib * (1 << 20) / sizeof(float));
  HugeBuffer buffer(std::max<size_t>(count, 1) * sizeof(float));
  std::span<float> x = buffer.as<float>().first(count);
  std::fill(x.begin(), x.end(), 0.0f);

  auto shared = comm::make_collective(world, {});
  auto messages = comm::make_collective(world, {.shared_memory = false});
  auto fast = comm::make_collective(world, {.reduction = comm::Reduction::fast});
  auto compressed =
      comm::make_collective(world, {.reduction = comm::Reduction::fast, .compress = Dtype::bf16});
  struct Path {
    const char* name;
    std::function<void()> run;
    std::vector<double> seconds;
  };
  std::vector<Path> paths = {
      {"exact, shared memory", [&] { shared->all_reduce(x).wait(); }, {}},
      {"exact, messages", [&] { messages->all_reduce(x).wait(); }, {}},
      {"fast (MPI_Iallreduce)", [&] { fast->all_reduce(x).wait(); }, {}},
      {"fast, bf16 between ranks", [&] { compressed->all_reduce(x, Dtype::bf16).wait(); }, {}},
      {"fast, fp16 between ranks", [&] { compressed->all_reduce(x, Dtype::f16).wait(); }, {}},
      {"MPI_Allreduce, blocking",
       [&] {
         comm::check(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM,
                                   world.mpi()->control),
                     "MPI_Allreduce");
       },
       {}},
  };
  const int repeats = mib >= 16 ? 9 : mib >= 1 ? 31 : 201;
  for (int i = -2; i < repeats; ++i)
    for (Path& path : paths) {
      world.barrier();
      auto start = Clock::now();
      path.run();
      if (i >= 0) path.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  if (world.rank() != 0) return;
  const double reference = median(paths.back().seconds), p = world.size();
  for (const Path& path : paths) {
    double t = median(path.seconds), bytes = static_cast<double>(count * sizeof(float));
    fmt::print("{:5} {:10.3f}  {:<24} {:9.3f} {:9.2f} {:9.2f} {:9.2f}\n", world.size(), mib, path.name,
               t * 1e3, bytes / t * 1e-9, bytes / t * 2 * (p - 1) / p * 1e-9, reference / t);
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::World world;
  if (!world.mpi() || world.size() == 1) {
    fmt::print(stderr, "start with mpirun -np N, N = 2, 4, 8, ...\n");
    return 2;
  }
  std::vector<double> sizes = {0.001, 0.0625, 1, 8, 64};
  if (argc > 1) sizes.clear();
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (world.rank() == 0)
    fmt::print("{:>5} {:>10}  {:<24} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "MiB", "path", "ms", "algbw",
               "busbw", "speed-up");
  for (double mib : sizes) bench(world, mib);
}
