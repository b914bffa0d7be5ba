// What every user of the HDF5 C API in this room needs: handles that close themselves, the lock, error text.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep::data {

/// Held around every call of the library: its state is global to the process, and builds differ in whether
/// they lock it themselves. Also keeps the library from printing its error stack. May be nested.
class Hdf5Lock {
 public:
  Hdf5Lock();
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  int (*printer_)(int64_t, void*) = nullptr;
  void* printer_data_ = nullptr;
};

/// A hid_t (int64_t since HDF5 1.10) and the function that closes it.
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  Hdf5Handle(int64_t id, int (*close)(int64_t)) : id_(id), close_(close) {}
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(Hdf5Handle&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& o) noexcept {
    std::swap(id_, o.id_);
    std::swap(close_, o.close_);
    return *this;
  }
  explicit operator bool() const { return id_ >= 0; }
  int64_t get() const { return id_; }
  /// Closes now; false when the library could not (say, on a full disk).
  bool reset();

 private:
  int64_t id_ = -1;
  int (*close_)(int64_t) = nullptr;
};

/// The innermost entry of the library's error stack: "Can't open object"; with errno's text where there is
/// one.
std::string hdf5_error();

}  // namespace lockstep::data
