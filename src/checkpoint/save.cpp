#include "checkpoint/save.h"

#include <fmt/format.h>

#include "checkpoint/load.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

static void write_files(const fs::path& partial, const Snapshot& snapshot, const FaultPoint& reached) {
  std::error_code error;
  fs::create_directory(partial, error);
  if (error) throw_file_error("create", partial, error.value());
  reached("partial created");
  const Metadata metadata{{"format", "pt"}};
  FileRecord records[2];
  records[0] = write_safetensors(partial / kModelFile, snapshot.model.views(), metadata);
  reached("model written");
  records[1] = write_safetensors(partial / kOptimizerFile, snapshot.optimizer.views(), metadata);
  reached("optimizer written");
  HashedWriter state(partial / kStateFile);
  state.write(state_text(snapshot.state, records));
  state.finish();
  reached("state written");
  sync_directory(partial);
  reached("partial synced");
}

static bool same_checkpoint(const fs::path& whole, const fs::path& partial) {
  try {
    load_checkpoint(whole);
    return read_text(whole / kStateFile) == read_text(partial / kStateFile);
  } catch (const UserError&) {
    return false;
  }
}

static fs::path with_suffix(fs::path path, const char* suffix) { return path += suffix; }

static void commit(const fs::path& partial, const fs::path& whole, const FaultPoint& reached) {
  const fs::path replaced = with_suffix(whole, kReplaced);
  const bool replaces = fs::exists(status_of(whole));
  if (replaces && same_checkpoint(whole, partial)) return remove_directory(partial);
  if (replaces) {
    remove_directory(replaced);
    rename_path(whole, replaced);
    reached("former one set aside");
  }
  rename_path(partial, whole);
  reached("renamed");
  sync_directory(whole.parent_path());
  reached("committed");
  if (replaces) remove_directory(replaced);
}

// A failed save leaves the directory as it was, as far as the file system lets it.
static void undo(const fs::path& partial, const fs::path& whole) {
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  if (!fs::exists(whole, ignored)) fs::rename(with_suffix(whole, kReplaced), whole, ignored);
}

fs::path write_checkpoint(const fs::path& directory, const Snapshot& snapshot,
                          const FaultPoint& fault_point) {
  const FaultPoint reached = fault_point ? fault_point : [](const std::string&) {};
  const fs::path whole = directory / step_name(snapshot.state.step), partial = with_suffix(whole, kPartial);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw_file_error("create", directory, error.value());
  try {
    remove_directory(partial);
    write_files(partial, snapshot, reached);
    commit(partial, whole, reached);
  } catch (...) {
    undo(partial, whole);
    throw;
  }
  return whole;
}

Saver::Saver(SaverOptions options) : options_(std::move(options)) { clean_stale(options_.directory); }

Saver::~Saver() { finish(); }

Snapshot Saver::take_storage() {
  finish();
  return std::move(snapshot_);
}

void Saver::save(Snapshot&& snapshot) {
  finish();
  snapshot_ = std::move(snapshot);
  busy_ = true;
  writer_ = std::thread([this] {
    write();
    busy_ = false;
  });
}

void Saver::finish() {
  if (writer_.joinable()) writer_.join();
}

void Saver::write() {
  const std::string step = fmt::format("'{}'", snapshot_.state.step);
  std::string lost = fmt::format("the checkpoint of step {} was not written", step);
  std::optional<UserError> failure;
  try {
    fs::path path = write_checkpoint(options_.directory, snapshot_, options_.fault_point);
    lost = fmt::format("checkpoints older than step {} could not be deleted", step);
    {
      std::lock_guard lock(mutex_);
      committed_ = path;
    }
    prune(options_.directory, options_.retention, path, options_.fault_point);
  } catch (const UserError& e) {
    failure = UserError(lost, fmt::format("{}: {}", e.headline(), e.why()), "training goes on; " + e.todo());
  } catch (const std::exception& e) {
    failure = UserError(lost, e.what(), "training goes on");
  }
  if (!failure) return;
  std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}

std::optional<UserError> Saver::take_failure() {
  std::lock_guard lock(mutex_);
  auto failure = std::move(failure_);
  failure_.reset();
  return failure;
}

fs::path Saver::last_committed() const {
  std::lock_guard lock(mutex_);
  return committed_;
}

}  // namespace lockstep::checkpoint
