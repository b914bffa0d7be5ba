// Data files that cannot be used, and unusual ones that can.
#include <hdf5.h>

#include <fstream>

#include "trainer_refusal.h"

namespace lockstep::e2e {
namespace {

class DataFile : public Refusal {
 protected:
  DataFile() { data("train.h5", 40); }

  std::string file() const { return (folder_ / "train.h5").string(); }

  void remove(const char* name) const {
    const hid_t f = H5Fopen(file().c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(H5Ldelete(f, name, H5P_DEFAULT), 0);
    H5Fclose(f);
  }

  /// Puts a data set of that type in place of the one in the file.
  template <class T>
  void replace(const char* name, hid_t stored, hid_t in_memory, const std::vector<hsize_t>& shape,
               const std::vector<T>& values) const {
    remove(name);
    const hid_t f = H5Fopen(file().c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t set = H5Dcreate2(f, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(set, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(f);
  }

  std::vector<int> labels() const {
    const hid_t f = H5Fopen(file().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
                set = H5Dopen2(f, "/labels", H5P_DEFAULT);
    std::vector<int> values(40);
    EXPECT_GE(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(set);
    H5Fclose(f);
    return values;
  }

  void refused(const std::vector<std::string>& said) const {
    for (int ranks : {1, 2}) expect_refusal(trainer(ranks) + " " + kGood, said);
  }
};

TEST_F(DataFile, ATruncatedOneIsNamedWithBothSizes) {
  const auto size = fs::file_size(file());
  fs::resize_file(file(), size - 100);
  refused({"train\\.h5' is cut short", "it has '" + std::to_string(size - 100) +
                                           "' bytes, its superblock says '" + std::to_string(size) + "'"});
}

TEST_F(DataFile, AnEvaluationOfOtherClassNamesIsRefused) {
  data("eval.h5", 20, "--eval");
  trained(1, kGood + "--data.eval eval.h5");
  const hid_t f = H5Fopen((folder_ / "eval.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t old = H5Aopen(f, "class_names", H5P_DEFAULT), type = H5Aget_type(old),
              space = H5Aget_space(old);
  ASSERT_GT(H5Tis_variable_str(type), 0);
  H5Aclose(old);
  EXPECT_GE(H5Adelete(f, "class_names"), 0);
  const hid_t set = H5Acreate2(f, "class_names", type, space, H5P_DEFAULT, H5P_DEFAULT);
  const char* names[] = {"one", "two", "three", "four"};
  EXPECT_GE(H5Awrite(set, type, names), 0);
  H5Aclose(set);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(f);
  for (int ranks : {1, 2}) {
    expect_refusal(trainer(ranks) + " " + kGood + "--data.eval eval.h5 --run.dir new",
                   {"data\\.train and data\\.eval name different classes",
                    "class '0' is '.*' in '/.*' and 'one' in '/.*eval\\.h5'"});
    expect_refusal(trainer(ranks) + " evaluate --resume run --data.eval eval.h5",
                   {"the training data and data\\.eval name different classes"});
  }
}

TEST_F(DataFile, AnEmptyOneIsNotHdf5) {
  std::ofstream(file(), std::ios::trunc);
  refused({"train\\.h5' is not an HDF5 file"});
}

TEST_F(DataFile, WithoutADataSet) {
  remove("/labels");
  refused({"train\\.h5' has no data set '/labels'", "it holds '.*/images'"});
}

TEST_F(DataFile, WithADataSetOfWrongRank) {
  replace("/images", H5T_STD_U8LE, H5T_NATIVE_UINT8, {40, 144}, std::vector<uint8_t>(40 * 144));
  refused({"data set '/images' in file '.*train\\.h5' has '2' dimensions", "it must have '4'"});
}

TEST_F(DataFile, WithImagesOfAnotherType) {
  replace("/images", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {40, 12, 12, 1}, std::vector<float>(40 * 144));
  refused({"data set '/images' in file '.*train\\.h5' has elements of type", "stored as 'u8'"});
}

TEST_F(DataFile, WithoutSamples) {
  replace("/images", H5T_STD_U8LE, H5T_NATIVE_UINT8, {0, 12, 12, 1}, std::vector<uint8_t>());
  replace("/labels", H5T_STD_I32LE, H5T_NATIVE_INT, {0}, std::vector<int>());
  refused({"data set '/images' in file '.*train\\.h5' holds no samples"});
}

TEST_F(DataFile, WithFewerLabelsThanImages) {
  replace("/labels", H5T_STD_I32LE, H5T_NATIVE_INT, {39}, std::vector<int>(39));
  refused({"has '40' images and '39' labels"});
}

TEST_F(DataFile, WithALabelOutOfRangeNamesItsRow) {
  std::vector<int> l = labels();
  l[7] = 4;
  replace("/labels", H5T_STD_I32LE, H5T_NATIVE_INT, {40}, l);
  refused(
      {"label '4' in row '7' of data set '/labels' in file '.*train\\.h5' is out of range", "'0' to '3'"});
  l[7] = -1;
  replace("/labels", H5T_STD_I32LE, H5T_NATIVE_INT, {40}, l);
  refused({"label '-1' in row '7' of data set '/labels' in file '.*train\\.h5' is negative"});
}

TEST_F(DataFile, WithALabelThatIsNoWholeNumberNamesItsRow) {
  std::vector<double> l(40, 1.0);
  l[39] = 2.5;
  replace("/labels", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {40}, l);
  refused({"label '2\\.5' in row '39' of data set '/labels' in file '.*train\\.h5' is not a whole number"});
}

TEST_F(DataFile, WithWholeLabelsOfAnyTypeAndByteOrderTrainsAlike) {
  trained(1, kGood + "--run.dir plain");
  const std::vector<int> l = labels();
  const std::vector<std::pair<std::string, hid_t>> types = {{"i16be", H5T_STD_I16BE},
                                                            {"u64be", H5T_STD_U64BE},
                                                            {"u8", H5T_STD_U8LE},
                                                            {"f32", H5T_IEEE_F32LE},
                                                            {"f64be", H5T_IEEE_F64BE}};
  for (const auto& [name, type] : types) {
    replace("/labels", type, H5T_NATIVE_INT, {40}, l);
    trained(1, kGood + "--run.dir " + name);
    EXPECT_EQ(json_at(folder_ / name / "summary.json", "/params_hash"),
              json_at(folder_ / "plain" / "summary.json", "/params_hash"))
        << name;
  }
}

}  // namespace
}  // namespace lockstep::e2e
