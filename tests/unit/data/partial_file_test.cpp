// Several writers of one file, and what killed ones leave.
#include "data/partial_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "data/classification_set.h"
#include "data/generate.h"
#include "data/verify.h"
#include "data/writer.h"
#include "test_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using test::file_bytes;
using test::user_error;
using test::write_bytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PartialFileTest : public testing::Test {
 protected:
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder.path())) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::unique_ptr<ClassificationWriter> writer(IfExists if_exists) {
    return std::make_unique<ClassificationWriter>(
        path, WriterOptions{
                  .num_samples = 100, .image = {8, 8, 1}, .class_names = {"a", "b"}, .if_exists = if_exists});
  }
  static void fill(ClassificationWriter& writer, uint8_t value) {
    const std::vector<uint8_t> image(64, value);
    for (int i = 0; i < 100; ++i) writer.append(image.data(), i % 2);
  }
  uint8_t first_pixel() {
    const ClassificationSet set(path);
    EXPECT_TRUE(find_damage(set).empty());
    std::vector<uint8_t> image(64);
    set.read(0, image.data());
    return image[0];
  }
  /// Runs `work` in a process of its own, which then waits to be killed.
  pid_t process(const std::function<void()>& work) {
    int done[2];
    EXPECT_EQ(pipe(done), 0);
    const pid_t child = fork();
    if (child == 0) {
      work();
      [[maybe_unused]] const ssize_t told = write(done[1], "x", 1);
      for (;;) pause();
    }
    char told;
    close(done[1]);
    EXPECT_EQ(read(done[0], &told, 1), 1);
    close(done[0]);
    return child;
  }
  static void kill_hard(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  static std::string host() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
  }
  test::TempFolder folder;
  std::string path = folder / "set.h5";
};

TEST_F(PartialFileTest, TwoWritersOfOneFileDoNotMeetAndTheSecondIsRefused) {
  const auto first = writer(IfExists::refuse), second = writer(IfExists::refuse);
  EXPECT_EQ(names().size(), 2u);
  fill(*second, 2);
  fill(*first, 1);
  first->commit();
  EXPECT_THAT(user_error([&] { second->commit(); }),
              AllOf(HasSubstr("file '" + path + "' exists"), HasSubstr("another process"),
                    HasSubstr("choose another name")));
  EXPECT_EQ(first_pixel(), 1);
  EXPECT_THAT(names(), ElementsAre("set.h5"));
}

TEST_F(PartialFileTest, AFileThatCameMeanwhileIsReplacedOrKeptAsAsked) {
  for (const auto& [if_exists, left] : {std::pair{IfExists::replace, 2}, {IfExists::keep, 1}}) {
    const auto first = writer(IfExists::replace), second = writer(if_exists);
    fill(*first, 1);
    fill(*second, 2);
    first->commit();
    second->commit();
    EXPECT_EQ(first_pixel(), left);
    EXPECT_THAT(names(), ElementsAre("set.h5"));
  }
}

TEST_F(PartialFileTest, ProcessesThatGenerateTheSameFileAtOnceAllHaveIt) {
  const GenerateOptions options{.num_samples = 500, .size = 8};
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    try {
      generate_file(path, options, "a test", IfExists::keep);
      _exit(find_damage(ClassificationSet(path)).empty() ? 0 : 1);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(2);
    }
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(names(), ElementsAre("set.h5"));
}

TEST_F(PartialFileTest, AFileToBeKeptIsNotGeneratedAgain) {
  write_bytes(path, {1, 2, 3});
  int rows = 0;
  generate_file(path, {.num_samples = 10}, "a test", IfExists::keep, [&](uint64_t) { ++rows; });
  EXPECT_EQ(rows, 0);
  EXPECT_EQ(file_bytes(path), (std::vector<uint8_t>{1, 2, 3}));
}

TEST_F(PartialFileTest, TheNextWriterRemovesWhatAKilledOneLeftButNotWhatALivingOneWrites) {
  const pid_t child = process([&] {
    auto left = writer(IfExists::refuse).release();
    fill(*left, 3);
  });
  const std::string theirs = "set.h5." + host() + "." + std::to_string(child) + ".partial";
  EXPECT_THAT(names(), ElementsAre(theirs));
  { const PartialFile living(path); }
  EXPECT_THAT(names(), ElementsAre(theirs));
  kill_hard(child);
  EXPECT_THAT(names(), ElementsAre(theirs));
  const auto next = writer(IfExists::refuse);
  EXPECT_THAT(names(), testing::Not(testing::Contains(theirs)));
  fill(*next, 4);
  next->commit();
  EXPECT_EQ(first_pixel(), 4);
  EXPECT_THAT(names(), ElementsAre("set.h5"));
}

TEST_F(PartialFileTest, ALeftoverWithThisProcesssNumberIsNoObstacle) {
  write_bytes(path + "." + host() + "." + std::to_string(getpid()) + ".partial", {1});
  const auto only = writer(IfExists::refuse);
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(PartialFileTest, FilesWithLikeNamesAreLeftAlone) {
  const std::string start = "set.h5." + host() + ".";
  const std::vector<std::string> others = {"other.h5." + host() + ".1.partial", start + "1.partial.old",
                                           start + "notes.partial", "set.h5.another-host.1.partial",
                                           "set.h5.partial"};
  for (const std::string& name : others) write_bytes(folder / name, {1});
  const PartialFile file(path);
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(folder / name)) << name;
}

TEST_F(PartialFileTest, APartialFileThatWasRemovedIsNamed) {
  PartialFile file(path);
  fs::remove(file.path());
  EXPECT_THAT(user_error([&] { file.publish(false); }), AllOf(HasSubstr(file.path()), HasSubstr("again")));
  EXPECT_THAT(user_error([&] { PartialFile(folder / "none/set.h5"); }), HasSubstr("make the folder"));
}

TEST_F(PartialFileTest, AFolderIsNotReplaced) {
  fs::create_directory(path);
  EXPECT_THAT(user_error([&] { PartialFile(path).publish(true); }), HasSubstr("name a file"));
  EXPECT_FALSE(PartialFile(path).publish(false));
  EXPECT_THAT(names(), ElementsAre("set.h5"));
}

TEST_F(PartialFileTest, ALinkToNothingIsAnExistingFile) {
  fs::create_symlink(folder / "elsewhere.h5", path);
  EXPECT_THAT(user_error([&] { writer(IfExists::refuse); }), HasSubstr("exists"));
}

TEST_F(PartialFileTest, TheFileHasTheUsualPermissions) {
  const mode_t mask = umask(027);
  PartialFile file(path);
  EXPECT_TRUE(file.publish(false));
  umask(mask);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

}  // namespace
}  // namespace lockstep::data
