#include "checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

[[noreturn]] static void throw_damaged(const fs::path& path, const std::string& why) {
  throw UserError(fmt::format("checkpoint '{}' is damaged", path.string()), why,
                  "resume from an older one; '--resume auto' passes damaged ones over");
}

[[noreturn]] static void throw_not_a_checkpoint(const fs::path& path) {
  std::string todo = fmt::format("give a directory such as 'checkpoints/{}'", step_name(120));
  for (const fs::path& directory : {path, path / "checkpoints"})
    if (fs::is_directory(status_of(directory)))
      for (const Entry& entry : list_entries(directory))
        if (entry.suffix.empty())
          throw UserError(fmt::format("'{}' is not a checkpoint", path.string()),
                          "it is a directory that holds checkpoints",
                          fmt::format("give one of them, such as '{}'", entry.path.string()));
  throw UserError(fmt::format("'{}' is not a checkpoint", path.string()),
                  !fs::exists(status_of(path))         ? "there is nothing of that name"
                  : !fs::is_directory(status_of(path)) ? "it is not a directory"
                                                       : fmt::format("it has no '{}'", kStateFile),
                  todo);
}

Checkpoint load_checkpoint(const fs::path& given, Verify verify) {
  const fs::path path = given.has_filename() ? given : given.parent_path();  // "step-00000120/"
  if (!fs::is_directory(status_of(path))) throw_not_a_checkpoint(path);
  const bool committed = path.filename().string().starts_with("step-");
  if (!fs::exists(status_of(path / kStateFile))) {
    if (!committed) throw_not_a_checkpoint(path);
    throw_damaged(path, fmt::format("'{}' is missing", kStateFile));
  }

  ParsedState parsed;
  try {
    parsed = parse_state(read_text(path / kStateFile));
  } catch (const UserError& e) {
    throw_damaged(path, fmt::format("{}: {}", e.headline(), e.why()));
  } catch (const std::exception& e) {
    throw_damaged(path, fmt::format("'{}': {}", kStateFile, e.what()));
  }

  if (const std::string named = step_name(parsed.state.step);
      committed && !path.filename().string().starts_with(named))
    throw_damaged(path, fmt::format("it was written as '{}'", named));
  for (const char* name : {kModelFile, kOptimizerFile})
    if (std::ranges::find(parsed.files, name, &FileRecord::name) == parsed.files.end())
      throw_damaged(path, fmt::format("'{}' does not list '{}'", kStateFile, name));
  for (const FileRecord& stated : parsed.files) {
    std::error_code error;
    uint64_t bytes = fs::file_size(path / stated.name, error);
    if (error) throw_damaged(path, fmt::format("'{}': {}", stated.name, error.message()));
    if (bytes != stated.bytes)
      throw_damaged(path,
                    fmt::format("'{}' has '{}' bytes, '{}' were written", stated.name, bytes, stated.bytes));
    if (verify == Verify::sizes) continue;
    uint64_t hash = 0;
    try {
      hash = hash_file(path / stated.name).xxh3;
    } catch (const UserError& e) {
      throw_damaged(path, fmt::format("{}: {}", e.headline(), e.why()));
    }
    if (hash != stated.xxh3)
      throw_damaged(path, fmt::format("the xxh3 of '{}' is '{}', '{}' was written", stated.name, hex64(hash),
                                      hex64(stated.xxh3)));
  }
  return {path, std::move(parsed.state)};
}

Latest find_latest(const fs::path& directory) {
  Latest latest;
  for (const Entry& entry : list_entries(directory)) {
    if (!entry.suffix.empty() && entry.suffix != kReplaced) continue;
    try {
      latest.checkpoint = load_checkpoint(entry.path);
      return latest;
    } catch (const UserError& e) {
      latest.damaged.push_back({entry.path, e.why()});
    }
  }
  return latest;
}

Checkpoint require(Latest latest, const fs::path& directory) {
  if (latest.checkpoint) return std::move(*latest.checkpoint);
  std::string why = fs::is_directory(status_of(directory)) ? "it holds none" : "there is no such directory";
  if (!latest.damaged.empty()) {
    why = "all are damaged:";
    for (const Damaged& d : latest.damaged)
      why += fmt::format(" '{}' ({})", d.path.filename().string(), d.why);
  }
  throw UserError(fmt::format("no checkpoint to resume from in '{}'", directory.string()), why,
                  "check the path, or start anew with '--resume never'");
}

static bool is_float(Dtype t) {
  return t == Dtype::f32 || t == Dtype::f64 || t == Dtype::bf16 || t == Dtype::f16;
}

static bool fits(const TensorView& found, const TensorSpec& wanted) {
  bool dtype = wanted.dtype == Dtype::f32 ? is_float(found.dtype) : found.dtype == wanted.dtype;
  return dtype && found.shape == wanted.shape;
}

static std::string describe(const TensorView& found, const TensorSpec& wanted) {
  auto text = [](const Shape& shape, Dtype dtype) {
    return fmt::format("{} {}", name_of(dtype), shape.text());
  };
  return fmt::format("'{}' ('{}' in the file, '{}' in the model)", wanted.name,
                     text(found.shape, found.dtype), text(wanted.shape, wanted.dtype));
}

Differences compare(const SafetensorsFile& file, std::span<const TensorSpec> expected) {
  Differences differences;
  std::set<std::string> known;
  for (const TensorSpec& wanted : expected) {
    known.insert(wanted.name);
    const TensorView* found = file.find(wanted.name);
    if (!found)
      differences.missing.push_back(fmt::format("'{}'", wanted.name));
    else if (!fits(*found, wanted))
      differences.misshapen.push_back(describe(*found, wanted));
  }
  for (const TensorView& t : file.tensors())
    if (!known.contains(t.name)) differences.extra.push_back(fmt::format("'{}'", t.name));
  return differences;
}

void require_same_model(const SafetensorsFile& file, std::span<const TensorSpec> expected) {
  auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("checkpoint '{}' is of another model", file.path().parent_path().string()),
                    why, "resume with the job that wrote it, or choose another checkpoint");
  };
  for (const TensorSpec& wanted : expected) {
    const TensorView* found = file.find(wanted.name);
    if (!found)
      refuse(fmt::format("the first difference in '{}': '{}' is missing", file.path().filename().string(),
                         wanted.name));
    else if (!fits(*found, wanted))
      refuse(fmt::format("the first difference in '{}': {}", file.path().filename().string(),
                         describe(*found, wanted)));
  }
  if (Differences rest = compare(file, expected); !rest.extra.empty())
    refuse(fmt::format("the first difference in '{}': {} is not in the model",
                       file.path().filename().string(), rest.extra.front()));
}

static std::string join(const std::vector<std::string>& items) {
  constexpr size_t kShown = 24;
  const std::string shown =
      fmt::format("{}", fmt::join(std::span(items).first(std::min(items.size(), kShown)), ", "));
  return items.size() <= kShown ? shown : fmt::format("{} and {} more", shown, items.size() - kShown);
}

void require_weights(const SafetensorsFile& file, std::span<const TensorSpec> expected) {
  const Differences d = compare(file, expected);
  if (d.empty()) return;
  std::vector<std::string> lists;
  if (!d.missing.empty()) lists.push_back(fmt::format("{} missing: {}", d.missing.size(), join(d.missing)));
  if (!d.extra.empty()) lists.push_back(fmt::format("{} extra: {}", d.extra.size(), join(d.extra)));
  if (!d.misshapen.empty())
    lists.push_back(fmt::format("{} misshapen: {}", d.misshapen.size(), join(d.misshapen)));
  const bool prefixed =
      std::ranges::all_of(file.tensors(), [](const TensorView& t) { return t.name.starts_with("module."); });
  throw UserError(
      fmt::format("the weights in '{}' do not fit the model", file.path().string()),
      fmt::format("{}", fmt::join(lists, "\n  ")),
      prefixed && !file.tensors().empty()
          ? "every name begins with 'module.', which PyTorch's DataParallel adds: save model.module"
          : "choose the model that the weights were made for, or convert the file");
}

}  // namespace lockstep::checkpoint
