// How much of plain pread's rate the data set and the loader reach, on shuffled rows of a file in the page
// cache. Runs are interleaved and the best of each is compared: other load on the machine only ever adds
// time.
//
//     loader_bench [SAMPLES [FOLDER]]      (default: 1000 samples of 224 x 224 x 3, 150 KB each)
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "data/generate.h"
#include "data/hdf5_file.h"
#include "data/loader.h"

namespace lockstep::data {
namespace {

constexpr int kRuns = 15;

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Least seconds of each piece of work, all run in turn, kRuns times after one to warm up.
std::vector<double> interleaved(const std::vector<std::function<void()>>& works) {
  std::vector<double> best(works.size(), 1e30);
  for (int run = 0; run <= kRuns; ++run)
    for (size_t i = 0; i < works.size(); ++i)
      if (double t = seconds(works[i]); run > 0) best[i] = std::min(best[i], t);
  return best;
}

void run_loader(const ClassificationSet& set, int threads, const TransformOptions& transforms = {}) {
  Loader loader(set, make_order(set, 32, 1, true, true), transforms, {.micro_batch = 32, .threads = threads});
  for (int64_t b = 0; b < loader.order().batches_per_epoch(); ++b) loader.next();
}

/// Reads every `threads`-th row in the order's sequence.
void read_share(const ClassificationSet& set, const Order& order, int first, int threads) {
  std::vector<uint8_t> image(static_cast<size_t>(set.image().bytes()));
  for (int64_t p = first; p < order.num_samples; p += threads)
    set.read(order.row(0, static_cast<uint64_t>(p)), image.data());
}

void read_rows(const ClassificationSet& set, const Order& order, int threads) {
  std::vector<std::jthread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back([&, t] { read_share(set, order, t, threads); });
  read_share(set, order, 0, threads);
}

void bench(int64_t samples, int64_t size, int64_t channels, const std::string& folder) {
  const std::string plain_path = folder + "/plain.h5", deflate_path = folder + "/deflate.h5";
  GenerateOptions o{.num_samples = samples, .size = size, .channels = channels};
  generate_file(plain_path, o, "loader_bench", IfExists::replace);
  o.compress = true;
  generate_file(deflate_path, o, "loader_bench", IfExists::replace);
  const ClassificationSet plain(plain_path), deflate(deflate_path);
  const Order order = make_order(plain, 32, 1, true), windowed = make_order(deflate, 32, 1, true);
  const size_t bytes = static_cast<size_t>(plain.image().bytes());
  const int64_t offset = Hdf5File(plain_path).dataset("/images", 4).layout().offset;
  const int file = ::open(plain_path.c_str(), O_RDONLY);
  std::vector<uint64_t> rows;
  for (int64_t p = 0; p < samples; ++p) rows.push_back(order.row(0, static_cast<uint64_t>(p)));
  auto pread_rows = [&] {
    std::vector<uint8_t> image(bytes);
    for (uint64_t row : rows)
      if (::pread(file, image.data(), bytes,
                  static_cast<off_t>(static_cast<uint64_t>(offset) + row * bytes)) !=
          static_cast<ssize_t>(bytes))
        std::abort();
  };
  const std::vector<double> t =
      interleaved({pread_rows, [&] { read_rows(plain, order, 1); }, [&] { run_loader(plain, 1); },
                   [&] { run_loader(plain, 2); }, [&] { read_rows(deflate, windowed, 1); },
                   [&] { read_rows(deflate, windowed, 2); }, [&] { run_loader(deflate, 2); }});
  ::close(file);
  fmt::print("{} samples of {} bytes, shuffled, page cache warm; plain pread: {:.0f} rows/s\n", samples,
             bytes, static_cast<double>(samples) / t[0]);
  auto line = [&](const char* what, double ratio, const char* note) {
    fmt::print("  {:<62}{:>6.2f}  {}\n", what, ratio, note);
  };
  line("rows through ClassificationSet::read + Order / plain pread", t[0] / t[1], "bar: 0.80");
  line("loader to normalised f32, 1 thread / plain pread", t[0] / t[2], "");
  line("loader to normalised f32, 2 threads / 1 thread", t[2] / t[3], "");
  line("deflate rows, 1 thread / plain pread", t[0] / t[4], "");
  line("deflate rows, 2 threads / 1 thread", t[4] / t[5], "");
  line("deflate loader, 2 threads / plain loader, 2 threads", t[3] / t[6], "");
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  const int64_t samples = argc > 1 ? std::atoll(argv[1]) : 1000;
  const std::filesystem::path folder =
      argc > 2 ? argv[2] : std::filesystem::temp_directory_path() / "lockstep_loader_bench";
  std::filesystem::create_directories(folder);
  lockstep::data::bench(samples, 224, 3, folder.string());
  lockstep::data::bench(samples * 10, 28, 1, folder.string());
  std::filesystem::remove(folder / "plain.h5");
  std::filesystem::remove(folder / "deflate.h5");
}
