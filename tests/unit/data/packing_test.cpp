// IDX and CIFAR input, and the datatool command line from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>

#include "data/cifar.h"
#include "data/classification_set.h"
#include "data/hdf5_file.h"
#include "data/idx.h"
#include "test_files.h"

namespace lockstep::data {
namespace {

using test::file_bytes;
using test::pixel;
using test::user_error;
using test::write_bytes;
using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

Bytes idx(const std::vector<uint32_t>& sizes, const Bytes& elements, uint8_t type = 8) {
  Bytes out = {0, 0, type, static_cast<uint8_t>(sizes.size())};
  for (uint32_t s : sizes)
    for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(s >> shift));
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}

Bytes gzip(const Bytes& in) {
  libdeflate_compressor* c = libdeflate_alloc_compressor(6);
  Bytes out(libdeflate_gzip_compress_bound(c, in.size()));
  out.resize(libdeflate_gzip_compress(c, in.data(), in.size(), out.data(), out.size()));
  libdeflate_free_compressor(c);
  return out;
}

Bytes pixels(uint64_t n, size_t bytes) {
  Bytes out;
  for (uint64_t r = 0; r < n; ++r)
    for (size_t i = 0; i < bytes; ++i) out.push_back(pixel(r, i));
  return out;
}

class PackingTest : public testing::Test {
 protected:
  struct Result {
    int code;
    std::string text;  ///< standard output and error
  };
  Result datatool(const std::string& arguments) {
    const std::string program = std::string(LOCKSTEP_BINARY_DIR) + "/datatool";
    EXPECT_EQ(access(program.c_str(), X_OK), 0) << "build the target datatool first: " << program;
    FILE* pipe = popen(("timeout 30 " + program + " " + arguments + " 2>&1").c_str(), "r");
    Result result{-1, ""};
    char part[512];
    while (size_t got = fread(part, 1, sizeof part, pipe)) result.text.append(part, got);
    result.code = WEXITSTATUS(pclose(pipe));
    return result;
  }
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  void write_idx(uint32_t n) {
    write_bytes(images, gzip(idx({n, 4, 5}, pixels(n, 20))));
    Bytes labels_of;
    for (uint32_t i = 0; i < n; ++i) labels_of.push_back(static_cast<uint8_t>(i % 4));
    write_bytes(labels, idx({n}, labels_of));
  }
  std::string pack(const std::string& more = "") {
    return "pack-idx --images " + images + " --labels " + labels + " --out " + out + " " + more;
  }
  test::TempFolder folder;
  std::string images = folder / "images.gz", labels = folder / "labels", out = folder / "out.h5";
};

// ---- IDX

TEST_F(PackingTest, IdxFilesAreReadPlainAndGzippedInOneOrMoreMembers) {
  const Bytes plain = idx({3, 2, 2}, pixels(3, 4));
  Bytes two = gzip(Bytes(plain.begin(), plain.begin() + 10));
  const Bytes rest = gzip(Bytes(plain.begin() + 10, plain.end()));
  two.insert(two.end(), rest.begin(), rest.end());
  for (const Bytes& stored : {plain, gzip(plain), two}) {
    write_bytes(images, stored);
    const IdxFile file = read_idx(images);
    EXPECT_EQ(file.sizes, (std::vector<int64_t>{3, 2, 2}));
    EXPECT_EQ(Bytes(file.elements(), file.elements() + 12), pixels(3, 4));
  }
}

TEST_F(PackingTest, DamagedIdxFilesAreNamed) {
  auto error = [&](const Bytes& bytes) {
    write_bytes(images, bytes);
    const std::string what = user_error([&] { read_idx(images); });
    EXPECT_THAT(what, HasSubstr("'" + images + "'"));
    return what;
  };
  const Bytes good = idx({3, 2, 2}, pixels(3, 4));
  EXPECT_THAT(error({}), HasSubstr("not an IDX file"));
  EXPECT_THAT(error({'P', 'K', 3, 4, 5, 6}), AllOf(HasSubstr("not an IDX file"), HasSubstr("'50 4b 03 04'")));
  EXPECT_THAT(error(Bytes(good.begin(), good.end() - 1)),
              AllOf(HasSubstr("cut short"), HasSubstr("'12'"), HasSubstr("'11'")));
  EXPECT_THAT(error(Bytes(good.begin(), good.begin() + 9)), HasSubstr("header"));
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_THAT(error(longer), HasSubstr("'13'"));
  EXPECT_THAT(error(idx({1, 1, 1}, Bytes(4), 0x0D)), HasSubstr("'0x0d'"));
  EXPECT_THAT(error(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {})), HasSubstr("damaged"));
  Bytes zipped = gzip(good);
  EXPECT_THAT(error(Bytes(zipped.begin(), zipped.end() - 9)), HasSubstr("gzip"));
  zipped[zipped.size() - 7] ^= 1;  // the checksum
  EXPECT_THAT(error(zipped), HasSubstr("gzip"));
  EXPECT_THAT(error({0x1f, 0x8b}), HasSubstr("gzip"));
}

TEST_F(PackingTest, ImagesAndLabelsMustBelongTogether) {
  write_idx(8);
  EXPECT_EQ(read_idx_pair(images, labels).image, (ImageShape{4, 5, 1}));
  EXPECT_THAT(user_error([&] { read_idx_pair(labels, images); }), HasSubstr("exchanged?"));
  write_bytes(labels, idx({7}, Bytes(7)));
  EXPECT_THAT(user_error([&] { read_idx_pair(images, labels); }), HasSubstr("'8' images and '7' labels"));
  write_bytes(images, idx({0, 4, 5}, {}));
  write_bytes(labels, idx({0}, {}));
  EXPECT_THAT(user_error([&] { read_idx_pair(images, labels); }), HasSubstr("no samples"));
  write_bytes(images, idx({2, 4, 5, 3}, pixels(2, 60)));
  write_bytes(labels, idx({2}, {0, 1}));
  EXPECT_EQ(read_idx_pair(images, labels).image, (ImageShape{4, 5, 3}));
}

// ---- CIFAR

Bytes cifar_records(uint64_t first, uint64_t n, size_t label_bytes) {
  Bytes out;
  for (uint64_t r = first; r < first + n; ++r) {
    out.push_back(static_cast<uint8_t>(r % 10));
    if (label_bytes == 2) out.push_back(static_cast<uint8_t>(r % 100));
    for (size_t i = 0; i < 3072; ++i) out.push_back(pixel(r, i));
  }
  return out;
}

TEST_F(PackingTest, CifarPlanesBecomeInterleavedPixels) {
  write_bytes(folder / "a.bin", cifar_records(0, 3, 1));
  write_bytes(folder / "b.bin", gzip(cifar_records(3, 4, 1)));
  const CifarFiles files = read_cifar({folder / "a.bin", folder / "b.bin"}, CifarKind::cifar10);
  ASSERT_EQ(files.num_samples(), 7);
  Bytes image(3072);
  for (uint64_t s = 0; s < 7; ++s) {
    EXPECT_EQ(files.label(s), static_cast<int64_t>(s));
    files.image(s, image.data());
    for (size_t i = 0; i < 1024; ++i)
      for (size_t c = 0; c < 3; ++c) ASSERT_EQ(image[3 * i + c], pixel(s, c * 1024 + i));
  }
  write_bytes(folder / "c.bin", cifar_records(12, 2, 2));
  EXPECT_EQ(read_cifar({folder / "c.bin"}, CifarKind::cifar100_fine).label(1), 13);
  EXPECT_EQ(read_cifar({folder / "c.bin"}, CifarKind::cifar100_coarse).label(1), 3);
}

TEST_F(PackingTest, DamagedCifarFilesAreNamed) {
  const std::string path = folder / "a.bin";
  Bytes bytes = cifar_records(0, 3, 1);
  bytes.pop_back();
  write_bytes(path, bytes);
  EXPECT_THAT(user_error([&] { read_cifar({path}, CifarKind::cifar10); }),
              AllOf(HasSubstr(path), HasSubstr("'3073'")));
  write_bytes(path, cifar_records(0, 3, 2));
  EXPECT_THAT(user_error([&] { read_cifar({path}, CifarKind::cifar10); }), HasSubstr("--kind 'cifar100'"));
  bytes = cifar_records(0, 3, 1);
  bytes[3073] = 10;
  write_bytes(path, bytes);
  EXPECT_THAT(user_error([&] { read_cifar({path}, CifarKind::cifar10); }),
              AllOf(HasSubstr("label '10' of record '1'"), HasSubstr(path)));
}

// ---- datatool

TEST_F(PackingTest, PackIdxWritesEverySampleWithItsLabel) {
  write_idx(60);
  for (const char* more : {"", "--compress --force"}) {
    const Result result = datatool(pack(more));
    ASSERT_EQ(result.code, 0) << result.text;
    const ClassificationSet set(out);
    ASSERT_EQ(set.num_samples(), 60);
    EXPECT_EQ(set.class_names(), (std::vector<std::string>{"0", "1", "2", "3"}));
    std::map<std::string, int32_t> wanted;
    const Bytes all = pixels(60, 20);
    for (int32_t r = 0; r < 60; ++r)
      wanted[std::string(all.begin() + 20 * r, all.begin() + 20 * r + 20)] = r % 4;
    Bytes image(20);
    for (uint64_t r = 0; r < 60; ++r) {
      set.read(r, image.data());
      const std::string key(image.begin(), image.end());
      ASSERT_TRUE(wanted.count(key));
      EXPECT_EQ(wanted[key], set.label(r));
      wanted.erase(key);
    }
    EXPECT_TRUE(wanted.empty());
  }
}

TEST_F(PackingTest, TheSameCommandTwiceGivesTheSameBytes) {
  write_idx(50);
  for (const char* more : {"--force", "--compress --force"}) {
    ASSERT_EQ(datatool(pack(more)).code, 0);
    const Bytes first = file_bytes(out);
    ASSERT_EQ(datatool(pack(more)).code, 0);
    EXPECT_EQ(file_bytes(out), first);
  }
}

TEST_F(PackingTest, AnExistingOutputIsKeptUnlessForced) {
  write_idx(10);
  ASSERT_EQ(datatool(pack()).code, 0);
  const Result again = datatool(pack("--seed 2"));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, AllOf(HasSubstr("'" + out + "' exists"), HasSubstr("--force")));
  EXPECT_EQ(datatool(pack("--seed 2 --force")).code, 0);
}

TEST_F(PackingTest, OfCommandsThatWriteOneFileAtOnceTheFirstWins) {
  const std::string program = std::string(LOCKSTEP_BINARY_DIR) + "/datatool";
  auto at_once = [&](const std::string& more) {
    std::vector<FILE*> running;
    for (int seed = 0; seed < 4; ++seed)
      running.push_back(popen((program + " generate --samples 500 --size 8 --seed " + std::to_string(seed) +
                               " --out " + out + more + " 2>&1")
                                  .c_str(),
                              "r"));
    std::map<int, int> codes;
    for (FILE* pipe : running) {
      std::string text;
      for (int c; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
      const int code = WEXITSTATUS(pclose(pipe));
      ++codes[code];
      EXPECT_TRUE(code == 0 || text.find("file '" + out + "' exists") != std::string::npos) << text;
    }
    EXPECT_EQ(datatool("verify " + out).code, 0);
    EXPECT_EQ(names(), (std::vector<std::string>{"out.h5"}));
    return codes;
  };
  EXPECT_EQ(at_once(""), (std::map<int, int>{{0, 1}, {2, 3}}));
  EXPECT_EQ(at_once(" --force"), (std::map<int, int>{{0, 4}}));
}

TEST_F(PackingTest, AFailedPackLeavesNothing) {
  write_idx(10);
  const Result result = datatool(pack("--class-names a,b"));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, AllOf(HasSubstr("out of range"), HasSubstr("'2' classes")));
  EXPECT_EQ(names(), (std::vector<std::string>{"images.gz", "labels"}));
}

TEST_F(PackingTest, UnknownCommandsAndOptionsSuggestTheNearest) {
  auto expect = [&](const std::string& arguments, const char* suggestion) {
    const Result result = datatool(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.text, HasSubstr(suggestion));
  };
  expect("pack-idex", "did you mean 'pack-idx'?");
  expect("pack-idx --image a", "did you mean '--images'?");
  expect("generate --out x --clases 3", "did you mean '--classes'?");
  expect("generate --out x --classes many", "many");
  expect("pack-idx --images a --labels b", "--out");
  expect("pack-cifar --kind cifar11 --input a --out " + out, "did you mean 'cifar10'?");
  expect("info " + (folder / "none.h5"), "does not exist");
  expect("", "usage");
}

TEST_F(PackingTest, HelpIsPrintedForEveryCommand) {
  for (const char* command : {"pack-idx", "pack-cifar", "generate", "info", "verify"}) {
    const Result result = datatool(std::string(command) + " --help");
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.text, AllOf(HasSubstr("usage: datatool"), HasSubstr("--help")));
  }
  EXPECT_EQ(datatool("--help").code, 0);
}

TEST_F(PackingTest, PackCifarInfoAndVerify) {
  write_bytes(folder / "a.bin", cifar_records(0, 20, 1));
  write_bytes(folder / "b.bin", cifar_records(20, 11, 1));
  ASSERT_EQ(datatool("pack-cifar --compress --input " + (folder / "a.bin") + " " + (folder / "b.bin") +
                     " --out " + out)
                .code,
            0);
  const Result info = datatool("info " + out);
  EXPECT_EQ(info.code, 0);
  EXPECT_THAT(info.text, AllOf(HasSubstr("u8 [31, 32, 32, 3]"), HasSubstr("automobile"), HasSubstr("deflate"),
                               HasSubstr("made_by       datatool pack-cifar --compress")));
  EXPECT_EQ(datatool("verify " + out).code, 0);
  Bytes bytes = file_bytes(out);
  const auto index = Hdf5File(out).dataset("/images", 4).chunk_index();
  bytes[index[0].address + 11] ^= 1;
  write_bytes(out, bytes);
  const Result verify = datatool("verify " + out);
  EXPECT_EQ(verify.code, 2);
  EXPECT_THAT(verify.text, AllOf(HasSubstr("damaged"), HasSubstr("chunk '0' (rows '0' to '30')")));
}

TEST_F(PackingTest, InputThatIsNoRegularFileIsRefusedWithoutWaitingForIt) {
  write_idx(10);
  const std::string pipe = folder / "pipe";
  mkfifo(pipe.c_str(), 0600);
  for (const std::string& command :
       {"pack-idx --images " + pipe + " --labels " + labels, "pack-cifar --input " + pipe,
        "pack-idx --images " + images + " --labels /dev/zero"}) {
    const Result result = datatool(command + " --out " + out);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.text, testing::AnyOf(HasSubstr("it is a pipe"), HasSubstr("it is a device")));
  }
}

TEST_F(PackingTest, VerifyNamesAMeanAndStdThatTheTrainerRefuses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : std::vector<std::pair<const char*, double>>{
           {"std", 0}, {"std", -0.5}, {"std", nan}, {"std", 1e300}, {"mean", nan}}) {
    test::write_file(out, {});
    test::set_number(out, name, value);
    const Result verify = datatool("verify " + out);
    EXPECT_EQ(verify.code, 2) << name << " " << value;
    EXPECT_THAT(verify.text,
                AllOf(HasSubstr("channel '0' has mean '"), HasSubstr("std must be more than 0")));
  }
}

TEST_F(PackingTest, InfoListsTheClassesThatOccurHoweverLargeALabel) {
  test::write_file(out, {.labels = {0, 1, 1, 0, 1, 1, 0, 1, 1, 1000000}});
  const Result info = datatool("info " + out);
  EXPECT_EQ(info.code, 0);
  EXPECT_THAT(info.text, HasSubstr("1000000"));
  EXPECT_EQ(std::count(info.text.begin(), info.text.end(), '%'), 3);
}

TEST_F(PackingTest, GenerateMakesTrainingAndEvaluationSets) {
  ASSERT_EQ(datatool("generate --samples 50 --classes 5 --size 8 --channels 3 --out " + out).code, 0);
  ASSERT_EQ(
      datatool("generate --samples 20 --classes 5 --size 8 --channels 3 --eval --out " + (folder / "eval.h5"))
          .code,
      0);
  const ClassificationSet train(out), eval(folder / "eval.h5");
  EXPECT_EQ(train.num_samples(), 50);
  EXPECT_EQ(train.image(), (ImageShape{8, 8, 3}));
  EXPECT_EQ(eval.num_classes(), 5);
}

}  // namespace
}  // namespace lockstep::data
