// What a user without root's rights meets, also where the tests run as root.
#pragma once

#include <unistd.h>

#include "trainer_refusal.h"

namespace lockstep::e2e {

/// Commands run as a user whom permissions stop; the test's folder belongs to that user.
class OrdinaryUser : public Refusal {
 protected:
  void SetUp() override {
    if (geteuid() != 0) return;
    const std::string nobody = "65534";
    as_user_ = "setpriv --reuid=" + nobody + " --regid=" + nobody + " --clear-groups env HOME=/ ";
    if (run("chown -R " + nobody + ":" + nobody + " .").code != 0 ||
        run(as_user_ + "test -x " TRAINER " -a -w .").code != 0)
      GTEST_SKIP() << "root cannot start '" TRAINER "' as another user";
  }
  void TearDown() override {
    for (const fs::path& path : locked_) fs::permissions(path, fs::perms::owner_all);
  }

  /// `command` as that user.
  std::string as_user(const std::string& command) const { return as_user_ + command; }
  /// Gives a file or folder of the test's folder to that user, with `permissions` until the test ends.
  void permit(const std::string& name, fs::perms permissions) {
    const fs::path path = folder_ / name;
    if (geteuid() == 0) {
      EXPECT_EQ(chown(path.c_str(), 65534, 65534), 0) << path;
    }
    fs::permissions(path, permissions);
    locked_.push_back(path);
  }

 private:
  std::string as_user_;
  std::vector<fs::path> locked_;
};

}  // namespace lockstep::e2e
