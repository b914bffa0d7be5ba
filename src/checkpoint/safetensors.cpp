#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "core/error.h"

namespace lockstep::checkpoint {

static_assert(std::endian::native == std::endian::little, "safetensors are stored as they lie in memory");

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr int kMaxDepth = 4;  // header > tensor > shape, with one to spare

constexpr std::pair<const char*, Dtype> kDtypes[] = {
    {"F32", Dtype::f32}, {"F64", Dtype::f64}, {"BF16", Dtype::bf16}, {"F16", Dtype::f16}, {"U8", Dtype::u8},
    {"I8", Dtype::i8},   {"U16", Dtype::u16}, {"I16", Dtype::i16},   {"U32", Dtype::u32}, {"I32", Dtype::i32},
    {"U64", Dtype::u64}, {"I64", Dtype::i64}, {"BOOL", Dtype::u8},
};

static const char* format_name(Dtype dtype) {
  return std::ranges::find(kDtypes, dtype, &std::pair<const char*, Dtype>::second)->first;
}

static std::optional<Dtype> dtype_of(const std::string& name) {
  for (auto& [text, dtype] : kDtypes)
    if (name == text) return dtype;
  return std::nullopt;
}

static std::string json_string(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

FileRecord write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const Metadata& metadata) {
  std::vector<const TensorView*> order;
  for (const TensorView& t : tensors) {
    if (t.data.size() != static_cast<size_t>(t.shape.count()) * size_of(t.dtype))
      throw std::invalid_argument(
          fmt::format("tensor '{}' of shape {} has {} bytes", t.name, t.shape.text(), t.data.size()));
    order.push_back(&t);
  }
  std::ranges::sort(order, {}, [](const TensorView* t) {
    return std::pair(-static_cast<int>(size_of(t->dtype)), std::string_view(t->name));
  });

  std::string header = "{";
  if (!metadata.empty())
    header += "\"__metadata__\":" + json(metadata).dump(-1, ' ', false, json::error_handler_t::replace);
  std::set<std::string> seen;
  uint64_t at = 0;
  for (const TensorView* t : order) {
    if (!seen.insert(t->name).second)
      throw std::invalid_argument(fmt::format("two tensors named '{}'", t->name));
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", json_string(t->name), format_name(t->dtype),
                          fmt::join(t->shape, ","), at, at + t->data.size());
    at += t->data.size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');

  HashedWriter file(path);
  const uint64_t size = header.size();
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(header);
  for (const TensorView* t : order) file.write(t->data);
  return file.finish();
}

namespace {

/// Everything wrong with a file is reported through this.
struct Refusal {
  const std::filesystem::path& path;
  template <class... Args>
  [[noreturn]] void operator()(fmt::format_string<Args...> why, Args&&... args) const {
    throw UserError(fmt::format("cannot use '{}' as a safetensors file", path.string()),
                    fmt::format(why, std::forward<Args>(args)...), "fetch or write the file again");
  }
};

/// Parses JSON of a known small depth and refuses keys that an object has twice, which json::parse would let
/// pass.
json parse_strictly(std::string_view text, const Refusal& refuse) {
  std::vector<std::set<std::string>> keys(kMaxDepth + 2);
  auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) refuse("its header is nested deeper than {} levels", kMaxDepth);
    if (event == json::parse_event_t::object_start) keys[depth + 1].clear();
    if (event == json::parse_event_t::key && !keys[depth].insert(parsed.get_ref<std::string&>()).second)
      refuse("its header has {} twice", json_string(parsed.get_ref<std::string&>()));
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    refuse("its header is not JSON: {}", e.what());
  }
}

struct Entry {
  TensorView tensor;
  uint64_t begin = 0, end = 0;
};

Entry parse_tensor(const std::string& name, const json& info, std::span<const std::byte> data,
                   const Refusal& refuse) {
  auto member = [&](const char* key, json::value_t type) -> const json& {
    if (!info.is_object() || !info.contains(key) || info[key].type() != type)
      refuse("tensor '{}' has no proper '{}'", name, key);
    return info[key];
  };
  auto unsigned_value = [&](const json& number, const char* what) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > INT64_MAX)
      refuse("tensor '{}' has '{}' in its {}", name, number.dump(), what);
    return number.get<uint64_t>();
  };

  const auto& dtype_name = member("dtype", json::value_t::string).get_ref<const std::string&>();
  auto dtype = dtype_of(dtype_name);
  if (!dtype) refuse("tensor '{}' has dtype '{}', which is not one that can be read", name, dtype_name);

  const json& dims = member("shape", json::value_t::array);
  if (dims.size() > Shape::kMaxRank)
    refuse("tensor '{}' has '{}' dimensions, more than '{}'", name, dims.size(), int{Shape::kMaxRank});
  std::vector<int64_t> sizes;
  uint64_t bytes = size_of(*dtype);
  for (const json& d : dims) {
    uint64_t size = unsigned_value(d, "shape");
    if (__builtin_mul_overflow(bytes, size, &bytes))
      refuse("tensor '{}' has an impossibly large shape", name);
    sizes.push_back(static_cast<int64_t>(size));
  }

  const json& offsets = member("data_offsets", json::value_t::array);
  if (offsets.size() != 2) refuse("tensor '{}' has '{}' data_offsets, not '2'", name, offsets.size());
  uint64_t begin = unsigned_value(offsets[0], "data_offsets"),
           end = unsigned_value(offsets[1], "data_offsets");
  if (begin > end) refuse("tensor '{}' ends at byte '{}', before it begins at '{}'", name, end, begin);
  Shape shape{std::span<const int64_t>(sizes)};
  if (end - begin != bytes)
    refuse("tensor '{}' of dtype '{}' and shape '{}' takes '{}' bytes, its data_offsets hold '{}'", name,
           dtype_name, shape.text(), bytes, end - begin);
  if (end > data.size())
    refuse("it is truncated: tensor '{}' ends at byte '{}' of the data, of which there are '{}'", name, end,
           data.size());
  return {{name, *dtype, shape, data.subspan(begin, end - begin)}, begin, end};
}

void refuse_gaps(std::vector<Entry>& entries, uint64_t data_bytes, const Refusal& refuse) {
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin < at) refuse("tensor '{}' overlaps the one before it at byte '{}'", e.tensor.name, e.begin);
    if (e.begin > at) refuse("there is a hole of '{}' bytes before tensor '{}'", e.begin - at, e.tensor.name);
    at = e.end;
  }
  if (at != data_bytes) refuse("it has '{}' bytes after its last tensor", data_bytes - at);
}

Metadata parse_metadata(const json& object, const Refusal& refuse) {
  Metadata metadata;
  if (!object.is_object()) refuse("its __metadata__ is not an object");
  for (auto& [key, value] : object.items()) {
    if (!value.is_string()) refuse("its __metadata__ '{}' is not a string", key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const Refusal refuse{path_};
  const Descriptor file = open_file(path);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) throw_file_error("read", path, errno);
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes < 8) refuse("it has '{}' bytes, fewer than the '8' of the header's size", bytes);

  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapping == MAP_FAILED) throw_file_error("map", path, errno);
  mapping_ = {mapping, [bytes](void* m) { munmap(m, bytes); }};
  std::span whole(static_cast<const std::byte*>(mapping), bytes);

  uint64_t header_bytes;
  std::memcpy(&header_bytes, whole.data(), 8);
  if (header_bytes > kMaxHeader)
    refuse("its header would be '{}' bytes, more than '{}': it is another format, or damaged", header_bytes,
           kMaxHeader);
  if (header_bytes > bytes - 8)
    refuse("it is truncated: its header is '{}' bytes, '{}' are there", header_bytes, bytes - 8);
  std::string_view header(reinterpret_cast<const char*>(whole.data()) + 8, header_bytes);
  if (!header.starts_with('{')) refuse("its header does not begin with '{{'");

  const std::span data = whole.subspan(8 + header_bytes);
  std::vector<Entry> entries;
  const json parsed = parse_strictly(header, refuse);
  for (auto& [name, value] : parsed.items()) {
    if (name == "__metadata__")
      metadata_ = parse_metadata(value, refuse);
    else
      entries.push_back(parse_tensor(name, value, data, refuse));
  }
  refuse_gaps(entries, data.size(), refuse);
  for (Entry& e : entries) tensors_.push_back(std::move(e.tensor));
  std::ranges::sort(tensors_, {}, &TensorView::name);
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  auto at = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace lockstep::checkpoint
