#include "data/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "data/generate.h"
#include "data/hdf5_file.h"
#include "data/verify.h"
#include "test_files.h"

namespace lockstep::data {
namespace {

using test::file_bytes;
using test::pixel;
using test::user_error;
using test::write_bytes;
using testing::AllOf;
using testing::HasSubstr;

class WriterTest : public testing::Test {
 protected:
  WriterOptions options(int64_t n, bool compress) {
    return {.num_samples = n,
            .image = {6, 5, 3},
            .class_names = {"a", "b", "\xC3\xA9t\xC3\xA9"},
            .compress = compress,
            .shuffle_seed = 17,
            .made_by = "a test"};
  }
  void write(const WriterOptions& o) {
    ClassificationWriter writer(path, o);
    std::vector<uint8_t> image(static_cast<size_t>(o.image.bytes()));
    for (int64_t i = 0; i < o.num_samples; ++i) {
      const uint64_t source = writer.source_row(static_cast<uint64_t>(i));
      for (size_t p = 0; p < image.size(); ++p) image[p] = pixel(source, p);
      writer.append(image.data(), static_cast<int64_t>(source % 3));
      sources.push_back(source);
    }
    writer.commit();
  }
  test::TempFolder folder;
  std::string path = folder / "set.h5";
  std::vector<uint64_t> sources;  ///< by stored row
};

TEST_F(WriterTest, WhatWasWrittenIsRead) {
  for (bool compress : {false, true}) {
    sources.clear();
    WriterOptions o = options(1000, compress);
    o.if_exists = IfExists::replace;
    write(o);
    EXPECT_EQ(std::set<uint64_t>(sources.begin(), sources.end()).size(), 1000u);
    EXPECT_FALSE(std::is_sorted(sources.begin(), sources.end()));
    const ClassificationSet set(path);
    EXPECT_EQ(set.num_samples(), 1000);
    EXPECT_EQ(set.image(), o.image);
    EXPECT_EQ(set.class_names(), o.class_names);
    std::vector<uint8_t> image(90);
    double sum = 0, squares = 0;
    for (uint64_t row = 0; row < 1000; ++row) {
      set.read(row, image.data());
      ASSERT_EQ(set.label(row), static_cast<int32_t>(sources[row] % 3));
      for (size_t p = 0; p < 90; ++p) ASSERT_EQ(image[p], pixel(sources[row], p));
      for (size_t p = 1; p < 90; p += 3) sum += image[p], squares += image[p] * image[p];
    }
    EXPECT_NEAR(set.mean()[1], sum / 30000 / 255, 1e-6);
    EXPECT_NEAR(set.std()[1], std::sqrt(squares / 30000 - sum * sum / 9e8) / 255, 1e-6);
    const Hdf5File file(path);
    EXPECT_EQ(file.string("format"), "lockstep");
    EXPECT_EQ(file.string("task"), "classification");
    EXPECT_EQ(file.string("made_by"), "a test");
    EXPECT_EQ(file.numbers("num_samples"), std::vector<double>{1000});
    EXPECT_EQ(file.numbers("shuffle_seed"), std::vector<double>{17});
    EXPECT_EQ(file.string("content_xxh3"), set.content_hash());
    EXPECT_TRUE(find_damage(set).empty());
  }
}

TEST_F(WriterTest, PlainImagesAreAlignedAndCompressedOnesAreInCheckedChunks) {
  write(options(1000, false));
  EXPECT_EQ(Hdf5File(path).dataset("/images", 4).layout().offset % 4096, 0);
  EXPECT_EQ(rows_per_chunk(1000000, {28, 28, 1}), 334);                   // 256 KiB
  EXPECT_EQ(rows_per_chunk(50, {28, 28, 1}), 50);                         // never more than there are
  EXPECT_EQ(rows_per_chunk(1000, {500, 500, 3}), 1);                      // never less than a sample
  EXPECT_LT(1281167 / rows_per_chunk(1281167, {256, 256, 3}) + 1, 8000);  // under 8,000 chunks
  std::filesystem::remove(path);
  write(options(5000, true));
  std::vector<int> filters;
  const Hdf5Dataset images = Hdf5File(path).dataset("/images", 4);
  for (const Filter& f : images.layout().filters) filters.push_back(f.id);
  EXPECT_EQ(filters, (std::vector<int>{H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32}));
}

// Two runs in one second would not show it.
TEST_F(WriterTest, NoTimeOfDayIsStored) {
  write(options(100, false));
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  for (const char* name : {"/", "/images", "/labels", "/checksums"}) {
    H5O_info_t info;
    ASSERT_GE(H5Oget_info_by_name(file, name, &info, H5P_DEFAULT), 0);
    EXPECT_EQ(info.ctime, 0) << name;
    EXPECT_EQ(info.mtime, 0) << name;
  }
  H5Fclose(file);
}

TEST_F(WriterTest, TheSameInputGivesTheSameBytes) {
  for (bool compress : {false, true}) {
    WriterOptions o = options(500, compress);
    o.if_exists = IfExists::replace;
    write(o);
    const auto first = file_bytes(path);
    write(o);
    EXPECT_EQ(file_bytes(path), first);
    o.shuffle_seed = 18;
    write(o);
    EXPECT_NE(file_bytes(path), first);
  }
}

TEST_F(WriterTest, ThousandsOfClassNamesFit) {
  WriterOptions o = options(10, false);
  o.class_names.clear();
  for (int c = 0; c < 20000; ++c) o.class_names.push_back("class number " + std::to_string(c));
  write(o);
  EXPECT_EQ(ClassificationSet(path).class_names(), o.class_names);
}

TEST_F(WriterTest, WithoutCommitNothingIsLeft) {
  {
    ClassificationWriter writer(path, options(100, true));
    std::vector<uint8_t> image(90);
    for (int i = 0; i < 50; ++i) writer.append(image.data(), 0);
    EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(WriterTest, AnExistingFileAndAMissingFolderAreRefused) {
  write(options(10, false));
  EXPECT_THAT(user_error([&] { ClassificationWriter(path, options(10, false)); }),
              AllOf(HasSubstr("'" + path + "' exists"), HasSubstr("--force")));
  EXPECT_THAT(user_error([&] { ClassificationWriter(folder / "no/set.h5", options(10, false)); }),
              HasSubstr((folder / "no") + "'"));
}

TEST_F(WriterTest, ALabelThatIsNoClassIsNamedWithItsInputRow) {
  ClassificationWriter writer(path, options(10, false));
  std::vector<uint8_t> image(90);
  writer.append(image.data(), 2);
  EXPECT_THAT(user_error([&] { writer.append(image.data(), 3); }),
              AllOf(HasSubstr("label '3'"), HasSubstr("'" + std::to_string(writer.source_row(1)) + "'")));
  EXPECT_THAT(user_error([&] { writer.append(image.data(), -1); }), HasSubstr("label '-1'"));
}

/// While it lives, files cannot grow past `bytes`: the library sees the failing writes of a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_;
  void (*handler_)(int);
};

TEST_F(WriterTest, AFullDiskIsNamedAndNothingIsLeft) {
  for (bool compress : {false, true})
    for (rlim_t limit : {1000, 50000, 200000}) {
      auto writer = std::make_unique<ClassificationWriter>(path, options(5000, compress));
      const std::string what = user_error([&] {
        FileSizeLimit full(limit);
        std::vector<uint8_t> image(90);
        for (uint64_t i = 0; i < 5000; ++i) {
          for (size_t p = 0; p < 90; ++p) image[p] = pixel(i, p);
          writer->append(image.data(), 0);
        }
        writer->commit();
      });
      EXPECT_THAT(what, AllOf(HasSubstr("'" + path + "'"), HasSubstr("File too large"))) << limit;
      writer.reset();
      EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << limit;
    }
  write(options(100, true));  // the library is still sound
  EXPECT_TRUE(find_damage(ClassificationSet(path)).empty());
}

TEST_F(WriterTest, AFlippedByteIsFoundWhereItIs) {
  write(options(1000, false));
  std::vector<uint8_t> bytes = file_bytes(path);
  const size_t images = static_cast<size_t>(Hdf5File(path).dataset("/images", 4).layout().offset);
  bytes[images + 90 * 123 + 7] ^= 4;
  bytes[images + 90 * 999] ^= 128;
  write_bytes(path, bytes);
  std::vector<std::string> damage = find_damage(ClassificationSet(path));
  ASSERT_EQ(damage.size(), 3u);
  EXPECT_THAT(damage[0], HasSubstr("row '123'"));
  EXPECT_THAT(damage[1], HasSubstr("row '999'"));
  EXPECT_THAT(damage[2], HasSubstr("content_xxh3"));
  EXPECT_EQ(find_damage(ClassificationSet(path), 1).size(), 1u);

  std::filesystem::remove(path);
  write(options(20000, true));
  bytes = file_bytes(path);
  const auto index = Hdf5File(path).dataset("/images", 4).chunk_index();
  ASSERT_GE(index.size(), 4u);
  bytes[index[2].address + 100] ^= 1;
  bytes[index[3].address + index[3].bytes - 1] ^= 1;  // the checksum itself
  write_bytes(path, bytes);
  damage = find_damage(ClassificationSet(path));
  ASSERT_EQ(damage.size(), 2u);
  EXPECT_THAT(damage[0], AllOf(HasSubstr("chunk '2'"), HasSubstr("Fletcher32")));
  EXPECT_THAT(damage[1], HasSubstr("chunk '3'"));
}

TEST_F(WriterTest, AChangedLabelIsFound) {
  write(options(100, false));
  std::vector<uint8_t> bytes = file_bytes(path);
  const size_t labels = static_cast<size_t>(Hdf5File(path).dataset("/labels", 1).layout().offset);
  bytes[labels + 4 * 42] ^= 1;
  write_bytes(path, bytes);
  try {
    const auto damage = find_damage(ClassificationSet(path));
    ASSERT_FALSE(damage.empty());
    EXPECT_THAT(damage[0], HasSubstr("row '42'"));
  } catch (const UserError& error) {  // 2 ^ 1 = 3 is no class
    EXPECT_THAT(error.what(), HasSubstr("row '42'"));
  }
}

// ---- the generated set

/// Share of `eval` samples whose nearest class mean over `train` is their own: a weak, linear-like learner.
double nearest_mean_accuracy(const ClassificationSet& train, const ClassificationSet& eval) {
  const size_t bytes = static_cast<size_t>(train.image().bytes()),
               classes = static_cast<size_t>(train.num_classes());
  std::vector<std::vector<double>> mean(classes, std::vector<double>(bytes));
  std::vector<double> count(classes);
  std::vector<uint8_t> image(bytes);
  for (uint64_t row = 0; row < static_cast<uint64_t>(train.num_samples()); ++row) {
    train.read(row, image.data());
    const size_t label = static_cast<size_t>(train.label(row));
    ++count[label];
    for (size_t i = 0; i < bytes; ++i) mean[label][i] += image[i];
  }
  int64_t right = 0;
  for (uint64_t row = 0; row < static_cast<uint64_t>(eval.num_samples()); ++row) {
    eval.read(row, image.data());
    std::vector<double> distance(classes);
    for (size_t c = 0; c < classes; ++c)
      for (size_t i = 0; i < bytes; ++i) {
        const double d = mean[c][i] / count[c] - image[i];
        distance[c] += d * d;
      }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == eval.label(row);
  }
  return static_cast<double>(right) / static_cast<double>(eval.num_samples());
}

TEST_F(WriterTest, TheGeneratedSetCanBeLearnedAndIsNotTrivial) {
  for (int64_t channels : {1, 3}) {
    GenerateOptions o{.num_samples = 1500, .classes = 10, .size = 16, .channels = channels, .seed = 2};
    generate_file(folder / "train.h5", o, "a test", IfExists::replace);
    o.eval = true, o.num_samples = 500;
    generate_file(folder / "eval.h5", o, "a test", IfExists::replace);
    const ClassificationSet train(folder / "train.h5"), eval(folder / "eval.h5");
    EXPECT_EQ(train.num_classes(), 10);
    EXPECT_NE(train.content_hash(), eval.content_hash());
    const double accuracy = nearest_mean_accuracy(train, eval);
    EXPECT_GT(accuracy, 0.35) << channels;
    EXPECT_LT(accuracy, 0.99) << channels;
    EXPECT_TRUE(find_damage(train).empty());
  }
}

TEST_F(WriterTest, TheGeneratedSetIsTheSameEverywhere) {
  generate_file(path, {.num_samples = 100, .classes = 4, .size = 12, .seed = 5}, "a test");
  EXPECT_EQ(ClassificationSet(path).content_hash(), "8378d16cb4df91ac");
}

TEST_F(WriterTest, SenselessGenerateOptionsAreNamed) {
  EXPECT_THAT(user_error([&] { generate_file(path, {.num_samples = 0}, ""); }),
              HasSubstr("'--samples' cannot be '0'"));
  EXPECT_THAT(user_error([&] { generate_file(path, {.channels = 9}, ""); }), HasSubstr("'--channels'"));
  EXPECT_THAT(user_error([&] { generate_file(path, {.size = 1}, ""); }), HasSubstr("'--size'"));
}

}  // namespace
}  // namespace lockstep::data
