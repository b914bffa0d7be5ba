// Root attributes of an Hdf5File.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "data/hdf5_file.h"

namespace lockstep::data {
namespace {

/// An attribute of the root group with its space and type; all false where there is none of that name.
struct OpenAttribute {
  /// Throws UserError where it claims more values than the file's bytes hold.
  OpenAttribute(const std::string& path, uint64_t file_bytes, hid_t file, const std::string& name) {
    if (H5Aexists(file, name.c_str()) <= 0) return;
    id = Hdf5Handle(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!id) return;
    space = Hdf5Handle(H5Aget_space(id.get()), H5Sclose);
    type = Hdf5Handle(H5Aget_type(id.get()), H5Tclose);
    kind = H5Tget_class(type.get());
    count = static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.get()), 0));
    if (count > file_bytes / std::max<size_t>(H5Tget_size(type.get()), 1))
      throw UserError(fmt::format("attribute '{}' in file '{}' is damaged", name, path),
                      fmt::format("it claims '{}' values, the file has '{}' bytes", count, file_bytes),
                      "copy or make the file again");
  }
  Hdf5Handle id, space, type;
  H5T_class_t kind = H5T_NO_CLASS;
  size_t count = 0;
};

}  // namespace

std::optional<std::vector<std::string>> Hdf5File::strings(const std::string& attribute) const {
  Hdf5Lock lock;
  OpenAttribute a(path_, bytes_, id_.get(), attribute);
  if (!a.id || a.kind != H5T_STRING) return std::nullopt;
  std::vector<std::string> values;
  Hdf5Handle memory(H5Tcopy(a.type.get()), H5Tclose);
  if (H5Tis_variable_str(a.type.get()) > 0) {
    std::vector<char*> texts(a.count, nullptr);
    if (H5Aread(a.id.get(), memory.get(), texts.data()) < 0) return std::nullopt;
    for (const char* text : texts) values.emplace_back(text ? text : "");
    H5Dvlen_reclaim(memory.get(), a.space.get(), H5P_DEFAULT, texts.data());
    return values;
  }
  const size_t width = H5Tget_size(a.type.get());
  std::vector<char> text(a.count * width);
  if (H5Aread(a.id.get(), memory.get(), text.data()) < 0) return std::nullopt;
  for (size_t i = 0; i < a.count; ++i)
    values.emplace_back(text.data() + i * width, strnlen(text.data() + i * width, width));
  if (H5Tget_strpad(a.type.get()) == H5T_STR_SPACEPAD)
    for (std::string& value : values) value.erase(value.find_last_not_of(' ') + 1);
  return values;
}

std::optional<std::string> Hdf5File::string(const std::string& attribute) const {
  auto values = strings(attribute);
  if (!values || values->size() != 1) return std::nullopt;
  return values->front();
}

std::optional<std::vector<double>> Hdf5File::numbers(const std::string& attribute) const {
  Hdf5Lock lock;
  OpenAttribute a(path_, bytes_, id_.get(), attribute);
  if (!a.id || (a.kind != H5T_INTEGER && a.kind != H5T_FLOAT)) return std::nullopt;
  std::vector<double> values(a.count);
  if (a.count > 0 && H5Aread(a.id.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) return std::nullopt;
  return values;
}

std::vector<std::pair<std::string, std::string>> Hdf5File::attributes() const {
  Hdf5Lock lock;
  std::vector<std::string> names;
  auto add = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  hsize_t position = 0;
  H5Aiterate2(id_.get(), H5_INDEX_NAME, H5_ITER_INC, &position, add, &names);
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& name : names) {
    std::string text = "(neither text nor number)";
    if (auto values = strings(name)) {
      text = fmt::format("{}", fmt::join(*values, ", "));
    } else if (OpenAttribute a(path_, bytes_, id_.get(), name);
               a.kind == H5T_INTEGER && a.count == 1) {  // 64 bits, not a double's 53
      uint64_t value = 0;
      H5Aread(a.id.get(), H5T_NATIVE_UINT64, &value);
      int64_t negative = 0;
      H5Aread(a.id.get(), H5T_NATIVE_INT64, &negative);
      text = negative < 0 ? fmt::format("{}", negative) : fmt::format("{}", value);
    } else if (auto numbers_found = numbers(name)) {
      text = fmt::format("{:.6g}", fmt::join(*numbers_found, ", "));
    }
    all.emplace_back(name, text);
  }
  return all;
}

}  // namespace lockstep::data
