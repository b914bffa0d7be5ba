// Data sets that lie elsewhere than under their name in the file: links, external and virtual storage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/classification_set.h"
#include "data/hdf5_file.h"
#include "data/verify.h"
#include "test_files.h"

namespace lockstep::data {
namespace {

using test::FileSpec;
using test::pixel;
using test::user_error;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

void gzip(hid_t list) { H5Pset_deflate(list, 4); }

class LinkedFileTest : public testing::Test {
 protected:
  /// A file whose /images and /labels are those of `target`, with `padding` bytes of another data set.
  void write_links(const std::string& target, hsize_t padding) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (const char* name : {"images", "labels"})
      ASSERT_GE(H5Lcreate_external(target.c_str(), name, file, name, H5P_DEFAULT, H5P_DEFAULT), 0);
    const std::vector<uint8_t> bytes(padding, 0xAB);
    const hid_t space = H5Screate_simple(1, &padding, nullptr);
    const hid_t set = H5Dcreate2(file, "padding", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_GE(H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), 0);
    H5Dclose(set), H5Sclose(space), H5Fclose(file);
  }
  void expect_rows(const ClassificationSet& set) {
    std::vector<uint8_t> image(static_cast<size_t>(set.image().bytes()));
    for (uint64_t row = 0; row < static_cast<uint64_t>(set.num_samples()); ++row) {
      set.read(row, image.data());
      EXPECT_EQ(set.label(row), static_cast<int32_t>(row % 3));
      for (size_t i = 0; i < image.size(); ++i) ASSERT_EQ(image[i], pixel(row, i)) << "row " << row;
    }
    EXPECT_TRUE(find_damage(set).empty());
  }
  test::TempFolder folder;
  std::string path = folder / "set.h5", target = folder / "target.h5";
};

TEST_F(LinkedFileTest, AnExternalLinkGivesThePixelsOfTheFileThatItNames) {
  const std::vector<FileSpec> specs = {
      {.image_shape = {40, 5, 4, 3}},
      {.image_shape = {40, 5, 4, 3}, .chunk = {7, 5, 4, 3}, .creation = gzip},
      {.image_shape = {40, 5, 4, 3}, .chunk = {7, 5, 4, 3}, .creation = gzip, .user_block = 512}};
  for (const FileSpec& spec : specs)
    for (hsize_t padding : {1, 1 << 20}) {  // a file shorter than its images, and one that is long enough
      write_file(target, spec);
      write_links("target.h5", padding);
      const ClassificationSet set(path);
      EXPECT_THAT(set.layout(), AllOf(StartsWith("through the HDF5 library"), HasSubstr(target)));
      EXPECT_EQ(set.chunk_rows(), spec.chunk.empty() ? 0 : 7);
      expect_rows(set);
    }
}

TEST_F(LinkedFileTest, ALinkedFileIsHeldToItsOwnSize) {
  write_file(target, {.image_shape = {10, 2000, 2000, 3}, .rows_written = 0});
  write_links("target.h5", 1);
  EXPECT_THAT(user_error([&] { ClassificationSet set(path); }),
              AllOf(HasSubstr("'/images'"), HasSubstr("damaged")));
}

TEST_F(LinkedFileTest, ALinkThatLeadsNowhereIsNamed) {
  write_links("target.h5", 1);
  EXPECT_THAT(user_error([&] { ClassificationSet set(path); }),
              AllOf(HasSubstr("'/images'"), HasSubstr("'" + path + "'"), HasSubstr("cannot be opened"),
                    HasSubstr("link")));
}

TEST_F(LinkedFileTest, ASoftLinkInTheFileIsReadByPread) {
  write_file(path, {.images_name = "pictures", .labels_name = "classes"});
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_soft("/pictures", file, "images", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("classes", file, "labels", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  const ClassificationSet set(path);
  EXPECT_THAT(set.layout(), StartsWith("contiguous"));
  expect_rows(set);
}

TEST_F(LinkedFileTest, OneFileOpenUnderTwoNamesIsReadByPreadUnderBoth) {
  write_file(target, {});
  std::filesystem::create_symlink("target.h5", path);
  const ClassificationSet one(target), other(path);
  for (const ClassificationSet* set : {&one, &other}) {
    EXPECT_THAT(set->layout(), StartsWith("contiguous"));
    expect_rows(*set);
  }
}

TEST_F(LinkedFileTest, ASoftLinkToAnExternalLinkIsReadFromTheOtherFile) {
  write_file(target, {});
  write_links("target.h5", 1 << 20);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lmove(file, "images", file, "linked", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/linked", file, "images", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  expect_rows(ClassificationSet(path));
}

TEST_F(LinkedFileTest, ExternalStorageIsReadByTheLibrary) {
  const std::string raw = folder / "pixels.raw";
  write_file(path, {.creation = [&](hid_t list) { H5Pset_external(list, raw.c_str(), 0, H5F_UNLIMITED); }});
  const ClassificationSet set(path);
  EXPECT_THAT(set.layout(), HasSubstr("external"));
  expect_rows(set);
}

TEST_F(LinkedFileTest, VirtualStorageIsReadByTheLibrary) {
  write_file(target, {});
  write_file(path, {.creation =
                        [&](hid_t list) {
                          const hsize_t size[4] = {10, 4, 4, 1};
                          const hid_t space = H5Screate_simple(4, size, nullptr);
                          H5Pset_virtual(list, space, target.c_str(), "images", space);
                          H5Sclose(space);
                        },
                    .rows_written = 0});
  const ClassificationSet set(path);
  EXPECT_THAT(set.layout(), HasSubstr("virtual"));
  expect_rows(set);
}

}  // namespace
}  // namespace lockstep::data
