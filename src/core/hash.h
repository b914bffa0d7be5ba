// XXH3, 64 bit: content hashes of data, checkpoints and parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

uint64_t xxh3(std::span<const std::byte> bytes);
std::string hex64(uint64_t hash);  ///< sixteen lower-case hex digits

/// Hash of a stream of pieces; equals xxh3() of their concatenation.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  void update(const void* data, size_t bytes);
  uint64_t digest() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

}  // namespace lockstep
