// Preloaded into a trainer, it makes the disk slow: each fsync takes a second longer.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int fsync(int file) {
  usleep(1'000'000);
  return static_cast<int>(syscall(SYS_fsync, file));
}
