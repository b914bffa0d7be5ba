// Loads the fixtures of this folder: safetensors files written by the scripts beside it, which say what each
// holds.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/shape.h"

namespace lockstep::golden {

inline std::filesystem::path folder() {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "golden";
}

/// One case: its tensors and, as metadata, its attributes. Every getter throws std::out_of_range for a name
/// that the file lacks, std::logic_error for another dtype.
class Fixture {
 public:
  /// `name` as "ops/conv2d_3x3" or "networks/resnet18".
  explicit Fixture(const std::string& name) : file_(folder() / (name + ".safetensors")) {}

  bool has(const std::string& tensor) const { return file_.find(tensor) != nullptr; }
  Shape shape(const std::string& tensor) const { return view(tensor).shape; }
  std::vector<float> floats(const std::string& tensor) const { return values<float>(tensor, Dtype::f32); }
  std::vector<double> doubles(const std::string& tensor) const { return values<double>(tensor, Dtype::f64); }
  std::vector<int32_t> ints(const std::string& tensor) const { return values<int32_t>(tensor, Dtype::i32); }

  const std::string& text(const std::string& attribute) const { return file_.metadata().at(attribute); }
  double number(const std::string& attribute) const { return std::stod(text(attribute)); }
  int64_t integer(const std::string& attribute) const { return std::stoll(text(attribute)); }
  bool flag(const std::string& attribute) const { return integer(attribute) != 0; }
  std::vector<std::string> list(const std::string& attribute) const {
    std::vector<std::string> items;
    std::istringstream stream(text(attribute));
    for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
    return items;
  }
  /// "3,2": height, width.
  std::array<int64_t, 2> pair(const std::string& attribute) const {
    const std::vector<std::string> items = list(attribute);
    return {std::stoll(items.at(0)), std::stoll(items.at(1))};
  }

 private:
  const checkpoint::TensorView& view(const std::string& tensor) const {
    const checkpoint::TensorView* v = file_.find(tensor);
    if (!v)
      throw std::out_of_range("golden file '" + file_.path().string() + "' has no tensor '" + tensor + "'");
    return *v;
  }
  template <class T>
  std::vector<T> values(const std::string& tensor, Dtype dtype) const {
    const checkpoint::TensorView& v = view(tensor);
    if (v.dtype != dtype)
      throw std::logic_error("golden tensor '" + tensor + "' is of dtype '" + name_of(v.dtype) + "'");
    std::vector<T> out(static_cast<size_t>(v.shape.count()));
    std::memcpy(out.data(), v.data.data(), v.data.size());
    return out;
  }
  checkpoint::SafetensorsFile file_;
};

/// Every operator case, "ops/...", in name order: the table of a table-driven test.
inline std::vector<std::string> operator_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "ops"))
    if (entry.path().extension() == ".safetensors") names.push_back("ops/" + entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// |a - b| / |b| in the L2 norm; infinite when sizes differ, |a| when b is zero.
template <class A, class B>
double relative_error(const A& a, const B& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    difference += d * d;
    norm += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

}  // namespace lockstep::golden
