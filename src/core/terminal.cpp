#include "core/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep {

// The parent is mpirun or, on other hosts than its own, its daemon, which has no terminal.
static bool launcher_on_terminal(int fd) {
  std::error_code hidden;
  const std::string link = "/proc/" + std::to_string(getppid()) + "/fd/" + std::to_string(fd);
  const std::string target = std::filesystem::read_symlink(link, hidden).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
}

bool on_terminal(int fd) {
  return isatty(fd) && (!std::getenv("OMPI_COMM_WORLD_RANK") || launcher_on_terminal(fd));
}

}  // namespace lockstep
