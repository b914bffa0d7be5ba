// Files and folders that the user may not use: refused by name and with the reason, nothing left behind.
#include <fstream>

#include "ordinary_user.h"

namespace lockstep::e2e {
namespace {

class Permissions : public OrdinaryUser {
 protected:
  Permissions() { data("train.h5", 203); }
  /// A folder that may not be searched.
  void make_private() {
    fs::create_directory(folder_ / "private");
    permit("private", fs::perms::none);
  }
};

TEST_F(Permissions, AnUnreadableFileIsNamed) {
  permit("train.h5", fs::perms::none);
  expect_refusal(as_user(trainer(1) + " " + kGood), {"train\\.h5' .*cannot be read"});
}

TEST_F(Permissions, AReadOnlyRunDirIsNamed) {
  fs::create_directory(folder_ / "locked");
  permit("locked", fs::perms::owner_read | fs::perms::owner_exec);
  for (int ranks : {1, 2})
    expect_refusal(as_user(trainer(ranks) + " " + kGood + "--run.dir locked/run"),
                   {"cannot write to run\\.dir 'locked/run'", "Permission denied"});
}

TEST_F(Permissions, ARunDirBehindAPrivateFolderIsNamed) {
  make_private();
  for (const std::string resume : {"", "--resume auto "})
    for (const char* dir : {"private", "private/run", "private/deep/run"})
      expect_refusal(as_user(trainer(1) + " " + kGood + resume + "--run.dir " + dir),
                     {"cannot write to run\\.dir '" + std::string(dir) + "'", "Permission denied"});
  expect_refusal(as_user(trainer(2) + " " + kGood + "--run.dir private/run"),
                 {"cannot write to run\\.dir 'private/run'", "Permission denied"});
  expect_refusal(as_user(trainer(1) + " evaluate --data.eval train.h5 --resume auto --run.dir private/run"),
                 {"cannot read 'private/run/checkpoints'", "Permission denied"});
}

TEST_F(Permissions, AJobFileBehindAPrivateFolderIsNamed) {
  make_private();
  expect_refusal(as_user(trainer(1) + " --job private/job.ini"),
                 {"job file 'private/job\\.ini' cannot be read: Permission denied"});
  std::ofstream(folder_ / "job.ini") << "[train]\nsteps = 1\n";
  permit("job.ini", fs::perms::none);
  expect_refusal(as_user(trainer(1) + " --job job.ini"),
                 {"job file 'job\\.ini' cannot be read: Permission denied"});
}

TEST_F(Permissions, ACheckpointBehindAPrivateFolderIsNamed) {
  make_private();
  expect_refusal(
      as_user(trainer(1) + " " + kGood + "--resume private/run"),
      {"checkpoint\\.resume '/.*/private/run' \\(command line\\) cannot be read: Permission denied"});
  expect_refusal(as_user(trainer(1) + " " + kGood + "--resume private"),
                 {"cannot read '/.*/private/state.json'", "Permission denied"});
}

}  // namespace
}  // namespace lockstep::e2e
