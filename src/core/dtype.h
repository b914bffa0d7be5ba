#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

enum class Dtype : uint8_t { f32, f64, bf16, f16, u8, i8, u16, i16, u32, i32, u64, i64 };

constexpr size_t size_of(Dtype t) {
  switch (t) {
    case Dtype::u8:
    case Dtype::i8:
      return 1;
    case Dtype::bf16:
    case Dtype::f16:
    case Dtype::u16:
    case Dtype::i16:
      return 2;
    case Dtype::f32:
    case Dtype::u32:
    case Dtype::i32:
      return 4;
    default:
      return 8;
  }
}

constexpr const char* name_of(Dtype t) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "f16", "u8",  "i8",
                                   "u16", "i16", "u32",  "i32", "u64", "i64"};
  return names[static_cast<int>(t)];
}

}  // namespace lockstep
