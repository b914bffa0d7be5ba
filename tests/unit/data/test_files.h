// Data files as other people write them, made with the plain C API; and a folder to put them in.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::data::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-data-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct FileSpec {
  std::vector<hsize_t> image_shape = {10, 4, 4, 1};
  std::vector<double> labels;  ///< default: row % 3
  hid_t image_type = H5T_STD_U8LE, label_type = H5T_STD_I32LE;
  std::vector<hsize_t> chunk;                          ///< empty: contiguous
  std::function<void(hid_t)> creation = [](hid_t) {};  ///< more settings of the images' creation list
  std::string images_name = "images", labels_name = "labels";
  std::vector<std::string> class_names;
  hsize_t user_block = 0;
  hsize_t rows_written = HSIZE_UNDEF;  ///< of the images
  bool labels_written = true;
  bool growable = false;  ///< the images, along dimension 0: then chunks may be larger than they are
};

/// Byte i of image `row`: looks random, so that chunks do not deflate to nothing, and is known.
inline uint8_t pixel(uint64_t row, uint64_t i) {
  uint64_t x = row * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
  return static_cast<uint8_t>((x ^ (x >> 29)) * 0x94D049BB133111EBu >> 58);
}

inline size_t image_bytes(const FileSpec& s) {
  size_t bytes = 1;
  for (size_t d = 1; d < s.image_shape.size(); ++d) bytes *= s.image_shape[d];
  return bytes;
}

inline void write_file(const std::string& path, const FileSpec& s) {
  hid_t created = H5Pcreate(H5P_FILE_CREATE);
  if (s.user_block) H5Pset_userblock(created, s.user_block);
  hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, created, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hsize_t n = s.image_shape[0];
  std::vector<double> labels = s.labels;
  if (labels.empty())
    for (hsize_t i = 0; i < n; ++i) labels.push_back(static_cast<double>(i % 3));

  if (!s.images_name.empty()) {
    std::vector<uint8_t> pixels;
    for (hsize_t r = 0; r < std::min(n, s.rows_written); ++r)
      for (size_t i = 0; i < image_bytes(s); ++i) pixels.push_back(pixel(r, i));
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (!s.chunk.empty()) H5Pset_chunk(list, static_cast<int>(s.chunk.size()), s.chunk.data());
    s.creation(list);
    std::vector<hsize_t> most = s.image_shape;
    if (s.growable) most[0] = H5S_UNLIMITED;
    hid_t space = H5Screate_simple(static_cast<int>(most.size()), s.image_shape.data(), most.data());
    hid_t set = H5Dcreate2(file, s.images_name.c_str(), s.image_type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ASSERT_GE(set, 0);
    if (s.rows_written == HSIZE_UNDEF) {
      ASSERT_TRUE(n == 0 ||
                  H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, pixels.data()) >= 0);
    } else if (s.rows_written > 0) {
      std::vector<hsize_t> start(s.image_shape.size(), 0), size = s.image_shape;
      size[0] = s.rows_written;
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr);
      hid_t memory = H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr);
      ASSERT_GE(H5Dwrite(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, pixels.data()), 0);
      H5Sclose(memory);
    }
    H5Dclose(set), H5Sclose(space), H5Pclose(list);
  }
  if (!s.labels_name.empty()) {
    const hsize_t count = labels.size();
    hid_t space = H5Screate_simple(1, &count, nullptr);
    hid_t set =
        H5Dcreate2(file, s.labels_name.c_str(), s.label_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_TRUE(count == 0 || !s.labels_written ||
                H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels.data()) >= 0);
    H5Dclose(set), H5Sclose(space);
  }
  if (!s.class_names.empty()) {  // fixed length, as numpy's S type is stored
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 16);
    std::vector<char> text(16 * s.class_names.size(), '\0');
    for (size_t i = 0; i < s.class_names.size(); ++i) s.class_names[i].copy(&text[16 * i], 16);
    const hsize_t count = s.class_names.size();
    hid_t space = H5Screate_simple(1, &count, nullptr);
    hid_t attribute = H5Acreate2(file, "class_names", type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, text.data());
    H5Aclose(attribute), H5Sclose(space), H5Tclose(type);
  }
  H5Fclose(file), H5Pclose(created);
}

inline std::vector<uint8_t> file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline void remove_attribute(const std::string& path, const char* name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  EXPECT_GE(H5Adelete(file, name), 0);
  H5Fclose(file);
}

/// Sets the root attribute, of whatever type it had, to one f64.
inline void set_number(const std::string& path, const char* name, double value) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  if (H5Aexists(file, name) > 0) H5Adelete(file, name);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value), 0);
  H5Aclose(attribute), H5Sclose(space), H5Fclose(file);
}

/// What `work` throws, which must be a UserError; "" and a failed test when it throws nothing.
inline std::string user_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return "";
}

}  // namespace lockstep::data::test
