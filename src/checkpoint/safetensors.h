// The safetensors format (https://github.com/huggingface/safetensors#format): an 8-byte header size, a JSON
// header, and the tensors' bytes, little-endian, with no gap.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace lockstep::checkpoint {

/// A named tensor, row-major. A view; whoever made it says how long it lives.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::span<const std::byte> data;  ///< shape.count() * size_of(dtype) bytes, possibly not aligned to dtype
};

using Metadata = std::map<std::string, std::string>;

/// Writes and fsyncs `path`. Tensors are stored by falling size of dtype, then by name, as upstream does:
/// each is aligned, and the bytes depend on the contents alone. Throws UserError when the file cannot be
/// written, std::invalid_argument when two tensors share a name or data does not fit shape.
FileRecord write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const Metadata& metadata = {});

/// A safetensors file, mapped read-only. The constructor checks all of the header before anything is used:
/// size (at most 100 MB, as upstream), JSON, duplicate names, dtypes, shapes against sizes, arithmetic
/// overflow, overlaps, holes, truncation, bytes left over. Throws UserError that names file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// In name order. The data lives as long as this object or a copy of it.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// Null when there is no tensor of that name.
  const TensorView* find(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<void> mapping_;
  std::vector<TensorView> tensors_;
  Metadata metadata_;
};

}  // namespace lockstep::checkpoint
