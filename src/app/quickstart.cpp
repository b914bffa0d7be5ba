#include "app/quickstart.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "data/generate.h"
#include "quickstart_ini.h"  // made by CMake from jobs/fashion_mnist.ini

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

struct Pair {
  fs::path train, test;
  bool exists() const {
    std::error_code ignored;  // a folder that may not be read holds nothing for us
    return fs::exists(train, ignored) && fs::exists(test, ignored);
  }
};

Pair pair_in(const fs::path& folder) { return {folder / "train.h5", folder / "test.h5"}; }

fs::path users_cache_folder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return fs::path(xdg) / "lockstep";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "lockstep";
  std::error_code ignored;
  const fs::path temporary = fs::temp_directory_path(ignored);
  return (ignored ? fs::path("/tmp") : temporary) / "lockstep";
}

bool can_be_written(const fs::path& folder) {
  std::error_code ignored;
  const fs::path existing = fs::exists(folder, ignored) ? folder : folder.parent_path();
  return access(existing.c_str(), W_OK | X_OK) == 0;
}

// In order of preference: a checkout's own .cache, next to the build folder; the user's cache folder.
std::vector<fs::path> cache_folders() {
  std::error_code ignored;
  const fs::path checkout = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  if (fs::exists(checkout / "jobs" / "fashion_mnist.ini", ignored))
    return {checkout / ".cache", users_cache_folder()};
  return {users_cache_folder()};
}

void generate(const Pair& to) {
  std::error_code error;
  fs::create_directories(to.train.parent_path(), error);
  if (error)
    throw UserError("cannot make the cache folder '" + to.train.parent_path().string() + "'", error.message(),
                    "set XDG_CACHE_HOME to a folder that can be written, or give --data.train FILE");
  data::GenerateOptions options;
  data::generate_file(to.train, options, "trainer (built-in quickstart)", data::IfExists::keep);
  options.num_samples = 2000;
  options.eval = true;
  data::generate_file(to.test, options, "trainer (built-in quickstart)", data::IfExists::keep);
}

}  // namespace

std::string built_in_job() {
  std::string ini = kQuickstartIni;
  for (const char* line : {"\ntrain = ", "\neval = "})
    if (const size_t at = ini.find(line); at != std::string::npos)
      ini.erase(at + 1, ini.find('\n', at + 1) - at - 1);
  return ini;
}

void give_built_in_data(comm::World& world, Invocation& invocation) {
  if (!invocation.built_in) return;
  const std::vector<fs::path> caches = cache_folders();
  // The first folder that holds the pair, or else may come to hold it.
  auto choose = [&](const char* name) {
    for (const fs::path& cache : caches)
      if (const Pair pair = pair_in(cache / name); pair.exists()) return pair;
    const auto writable = std::ranges::find_if(caches, can_be_written);
    return pair_in((writable == caches.end() ? caches.back() : *writable) / name);
  };
  const Pair fashion = choose("fashion_mnist"), generated = choose("generated");
  // One answer for all ranks, also where hosts do not share the folder.
  const bool packed = !world.any(!fashion.exists());
  if (!packed) {
    world.together([&] {
      if (world.rank() == 0) generate(generated);
    });
    world.together([&] {
      if (world.local_rank() == 0) generate(generated);
    });
  }
  const Pair& data = packed ? fashion : generated;
  train::DataOptions& job = invocation.job.data;
  job.train = data.train.string();
  invocation.origin["data.train"] = "built-in job";
  if (invocation.origin["data.eval"] == kDefaultOrigin) {
    job.eval = data.test.string();
    invocation.origin["data.eval"] = "built-in job";
  }
  if (world.rank() == 0)
    fmt::print("no job given: the built-in quickstart job on {} in '{}'\n",
               packed ? "Fashion-MNIST" : "a generated image set", data.train.parent_path().string());
}

}  // namespace lockstep::app
