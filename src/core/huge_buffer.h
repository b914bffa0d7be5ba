// Memory straight from the kernel, zeroed, on huge pages where the system has them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace lockstep {

/// Why: a 4 KiB page fault costs some 12 us on small virtual machines, 0.3 us with MADV_HUGEPAGE
/// (docs/performance.md). Aligned to 2 MiB when larger than that, else to a page.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& o) noexcept { swap(o); }
  HugeBuffer& operator=(HugeBuffer&& o) noexcept {
    swap(o);
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void swap(HugeBuffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(mapping_, o.mapping_);
    std::swap(mapped_, o.mapped_);
  }
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace lockstep
