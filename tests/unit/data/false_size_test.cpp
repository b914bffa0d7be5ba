// Files that claim more than they hold: refused by name before memory is taken for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "data/classification_set.h"
#include "data/hdf5_file.h"
#include "data/idx.h"
#include "data/verify.h"
#include "test_files.h"

namespace lockstep::data {
namespace {

using test::file_bytes;
using test::FileSpec;
using test::user_error;
using test::write_bytes;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif

void gzip(hid_t list) { H5Pset_deflate(list, 4); }

/// The numbers as they are stored, little-endian.
template <class T>
Bytes stored(const std::vector<T>& numbers) {
  Bytes bytes(numbers.size() * sizeof(T));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

class FalseSizeTest : public testing::Test {
 protected:
  /// Replaces the one place of the file that holds `from`.
  void patch(const Bytes& from, const Bytes& to) {
    Bytes bytes = file_bytes(path);
    const auto at = std::search(bytes.begin(), bytes.end(), from.begin(), from.end());
    ASSERT_NE(at, bytes.end());
    ASSERT_EQ(std::search(at + 1, bytes.end(), from.begin(), from.end()), bytes.end());
    std::copy(to.begin(), to.end(), at);
    write_bytes(path, bytes);
  }
  std::string error_of_file() {
    std::string what = user_error([&] { ClassificationSet set(path); });
    EXPECT_THAT(what, HasSubstr("'" + path + "'"));
    return what;
  }
  std::string error_of(const FileSpec& spec) {
    write_file(path, spec);
    return error_of_file();
  }
  /// The error of reading every row.
  std::string error_of_reading() {
    return user_error([&] {
      const ClassificationSet set(path);
      Bytes image(static_cast<size_t>(set.image().bytes()));
      for (int64_t row = 0; row < set.num_samples(); ++row)
        set.read(static_cast<uint64_t>(row), image.data());
    });
  }
  test::TempFolder folder;
  std::string path = folder / "set.h5";
};

TEST_F(FalseSizeTest, ImagesThatWereNeverWrittenAreNotAllocated) {
  EXPECT_THAT(error_of({.image_shape = {10, 20000, 20000, 3}, .rows_written = 0}),
              AllOf(HasSubstr("'/images'"), HasSubstr("'[10, 20000, 20000, 3]'")));
  EXPECT_THAT(error_of({.image_shape = {10, 20000, 20000, 3}, .chunk = {1, 10, 10, 3}, .rows_written = 0}),
              AllOf(HasSubstr("'/images'"), HasSubstr("'[10, 20000, 20000, 3]'")));
}

TEST_F(FalseSizeTest, ChunksLargerThanTheFileCouldInflateToAreRefused) {
  EXPECT_THAT(error_of({.chunk = {1 << 27, 4, 4, 1}, .creation = gzip, .rows_written = 0, .growable = true}),
              AllOf(HasSubstr("'/images'"), HasSubstr("chunks of '[134217728, 4, 4, 1]'")));
}

TEST_F(FalseSizeTest, ChunksWiderThanTheImagesAreRefused) {
  write_file(path, {.image_shape = {60, 5, 3, 3}, .chunk = {7, 5, 3, 3}, .creation = gzip});
  patch(stored<uint32_t>({7, 5, 3, 3, 1}), stored<uint32_t>({7, 5, 4, 3, 1}));
  EXPECT_THAT(error_of_file(), AllOf(HasSubstr("'/images'"), HasSubstr("chunks of '[7, 5, 4, 3]'")));
}

TEST_F(FalseSizeTest, CompactImagesThatAreNotAllThereAreRefused) {
  write_file(path, {.creation = [](hid_t list) { H5Pset_layout(list, H5D_COMPACT); }});
  patch(stored<uint64_t>({10, 4, 4, 1, 10, 4, 4, 1}), stored<uint64_t>({10, 4, 6, 1, 10, 4, 6, 1}));
  EXPECT_THAT(error_of_file(), AllOf(HasSubstr("'/images'"), HasSubstr("'[10, 4, 6, 1]'")));
}

TEST_F(FalseSizeTest, LabelsThatAreNotStoredAreNotAllocated) {
  EXPECT_THAT(error_of({.image_shape = {5000, 1, 1, 1}, .labels_written = false}),
              AllOf(HasSubstr("'/labels'"), HasSubstr("'[5000]'"), HasSubstr("'0' bytes that are stored")));
}

TEST_F(FalseSizeTest, AVirtualOrExternalRowHasABoundToo) {
  EXPECT_THAT(error_of({.image_shape = {10, 100000, 100000, 3},
                        .creation = [](hid_t list) { H5Pset_external(list, "pixels.raw", 0, H5F_UNLIMITED); },
                        .rows_written = 0}),
              AllOf(HasSubstr("'/images'"), HasSubstr("100000")));
}

/// Of a chunk in the index (a version 1 B-tree): its bytes, filter mask and first row.
Bytes index_key(uint64_t bytes, uint64_t row) {
  Bytes key = stored<uint32_t>({static_cast<uint32_t>(bytes), 0});
  const Bytes offsets = stored<uint64_t>({row, 0, 0, 0, 0});
  key.insert(key.end(), offsets.begin(), offsets.end());
  return key;
}

TEST_F(FalseSizeTest, AChunkOfMoreBytesThanTheFileIsRefused) {
  for (hsize_t user_block : {0, 512}) {  // with one, the library looks each chunk up when it is read
    write_file(
        path,
        {.image_shape = {60, 5, 3, 3}, .chunk = {7, 5, 3, 3}, .creation = gzip, .user_block = user_block});
    uint64_t bytes = 0;
    {
      Bytes chunk;
      bytes = Hdf5File(path).dataset("/images", 4).read_chunk(14, chunk).bytes;
    }
    patch(index_key(bytes, 14), index_key(0xFFFFFFF0, 14));
    EXPECT_THAT(error_of_reading(),
                AllOf(HasSubstr("'" + path + "'"), HasSubstr("'/images'"), HasSubstr("'4294967280'")));
  }
}

TEST_F(FalseSizeTest, AChunkOfARowThatIsNotThereIsRefused) {
  write_file(path, {.image_shape = {60, 5, 3, 3}, .chunk = {7, 5, 3, 3}, .creation = gzip});
  const uint64_t bytes = Hdf5File(path).dataset("/images", 4).chunk_index()[8].bytes;
  patch(index_key(bytes, 56), index_key(bytes, 7 << 20));
  EXPECT_THAT(error_of_reading(), AllOf(HasSubstr("'" + path + "'"), HasSubstr("'/images'")));
}

TEST_F(FalseSizeTest, AnAttributeOfMoreValuesThanTheFileHasBytesIsRefused) {
  write_file(path, {.class_names = {"a", "b", "c", "d", "e", "f", "g"}});
  // Times 16 bytes that is 0 in 64 bits, and nothing to the library.
  patch(stored<uint64_t>({7, 7}), stored<uint64_t>({uint64_t{1} << 60, uint64_t{1} << 60}));
  EXPECT_THAT(error_of_file(), HasSubstr("'class_names'"));
}

TEST_F(FalseSizeTest, AGzipFileThatClaimsGibibytesIsNotGivenThem) {
  if (!kLimitsMemory) GTEST_SKIP() << "the sanitizer's own memory has no limit";
  std::mt19937 random(1);
  Bytes bytes(4 << 20);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  bytes[0] = 0x1f, bytes[1] = 0x8b, bytes[2] = 8, bytes[3] = 0;
  std::fill(bytes.end() - 4, bytes.end(), 0xFF);
  write_bytes(path, bytes);
  auto read_with_little_memory = [&] {
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    try {
      read_maybe_gzip(path);
    } catch (const UserError&) {
      _exit(0);
    } catch (...) {
    }
    _exit(1);
  };
  EXPECT_EXIT(read_with_little_memory(), testing::ExitedWithCode(0), "");
}

// In a process of its own, as for contiguous files: the library leaks.
TEST_F(FalseSizeTest, DamagedMetadataOfChunksIsAnErrorNotACrash) {
  write_file(path, {.image_shape = {60, 5, 3, 3}, .chunk = {7, 5, 3, 3}, .creation = gzip});
  const Bytes whole = file_bytes(path);
  auto read_damaged_files = [&] {
    int refused = 0;
    for (size_t at = 0; at < whole.size(); at += 7) {
      Bytes bytes = whole;
      bytes[at] ^= 0xFF;
      write_bytes(path, bytes);
      try {
        const ClassificationSet set(path);
        find_damage(set);
      } catch (const UserError&) {
        ++refused;
      }
    }
    _exit(refused > 20 ? 0 : 1);
  };
  EXPECT_EXIT(read_damaged_files(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::data
