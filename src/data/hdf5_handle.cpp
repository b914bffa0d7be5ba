#include "data/hdf5_handle.h"

#include <hdf5.h>

#include <type_traits>

namespace lockstep::data {

static_assert(std::is_same_v<hid_t, int64_t>);

/// Local to the process as the library's own state is. Its exit handler is not wanted: every handle here is
/// closed by its owner, and after a close that failed (a broken disk) the handler touches freed memory.
static std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  [[maybe_unused]] static const herr_t no_exit_handler = H5dont_atexit();
  return mutex;
}

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Lock::~Hdf5Lock() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

bool Hdf5Handle::reset() {
  if (id_ < 0) return true;
  Hdf5Lock lock;
  return close_(std::exchange(id_, -1)) >= 0;
}

std::string hdf5_error() {
  std::string text;
  auto keep_innermost = [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
    if (entry->desc && *entry->desc) *static_cast<std::string*>(out) = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  const std::string marker = "error message = '";
  if (size_t at = text.find(marker); at != std::string::npos) {
    at += marker.size();
    text = text.substr(at, text.find('\'', at) - at);
  }
  return text.empty() ? "the HDF5 library gave no reason" : text;
}

}  // namespace lockstep::data
