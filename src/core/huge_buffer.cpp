#include "core/huge_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace lockstep {

HugeBuffer::HugeBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  constexpr size_t kHuge = size_t{2} << 20;
  const bool huge = bytes >= kHuge;
  mapped_ = huge ? (bytes + kHuge - 1) / kHuge * kHuge + kHuge : bytes;
  mapping_ =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  auto address = reinterpret_cast<uintptr_t>(mapping_);
  if (huge) {
    address = (address + kHuge - 1) / kHuge * kHuge;
    madvise(reinterpret_cast<void*>(address), mapped_ - kHuge, MADV_HUGEPAGE);
  }
  data_ = reinterpret_cast<std::byte*>(address);
}

HugeBuffer::~HugeBuffer() {
  if (mapping_) munmap(mapping_, mapped_);
}

}  // namespace lockstep
