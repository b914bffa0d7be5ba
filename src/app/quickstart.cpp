#include "app/quickstart.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "data/generate.h"
#include "quickstart_ini.h"  // made by CMake from jobs/fashion_mnist.ini

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

struct Pair {
  fs::path train, test;
  bool exists() const { return fs::exists(train) && fs::exists(test); }
};

// A checkout's own .cache, next to the build folder; else the user's cache folder.
fs::path cache_folder() {
  std::error_code ignored;
  const fs::path checkout = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  if (fs::exists(checkout / "jobs" / "fashion_mnist.ini")) return checkout / ".cache";
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return fs::path(xdg) / "lockstep";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "lockstep";
  return fs::temp_directory_path() / "lockstep";
}

void generate(const Pair& to) {
  std::error_code error;
  fs::create_directories(to.train.parent_path(), error);
  if (error)
    throw UserError("cannot make the cache folder '" + to.train.parent_path().string() + "'", error.message(),
                    "set XDG_CACHE_HOME to a folder that can be written, or give --data.train FILE");
  data::GenerateOptions options;
  if (!fs::exists(to.train)) data::generate_file(to.train, options, "trainer (built-in quickstart)", true);
  options.num_samples = 2000;
  options.eval = true;
  if (!fs::exists(to.test)) data::generate_file(to.test, options, "trainer (built-in quickstart)", true);
}

std::string with_data(std::string ini, const Pair& files) {
  auto set = [&](const std::string& key, const fs::path& value) {
    const size_t at = ini.find("\n" + key + " = ") + 1, end = ini.find('\n', at);
    ini.replace(at, end - at, key + " = " + value.string());
  };
  set("train", files.train);
  set("eval", files.test);
  return ini;
}

}  // namespace

std::string quickstart_job(comm::World& world, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    for (std::string_view own : {"--job", "--data.train", "--help", "-h"})
      if (a == own || a.starts_with(std::string(own) + "=")) return "";
  }
  if (argc > 1 && argv[1][0] != '-' && std::string_view(argv[1]) != "train") return "";
  const fs::path cache = cache_folder();
  const Pair fashion{cache / "fashion_mnist" / "train.h5", cache / "fashion_mnist" / "test.h5"};
  const Pair generated{cache / "generated" / "train.h5", cache / "generated" / "test.h5"};
  // One answer for all ranks, also where hosts do not share the folder.
  if (!world.any(!fashion.exists())) return with_data(kQuickstartIni, fashion);
  world.together([&] {
    if (world.rank() == 0) generate(generated);
  });
  world.together([&] {
    if (world.local_rank() == 0) generate(generated);
  });
  return with_data(kQuickstartIni, generated);
}

}  // namespace lockstep::app
