#include "core/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace lockstep {

uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hex64(uint64_t hash) { return fmt::format("{:016x}", hash); }

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;
void Xxh3Stream::Free::operator()(void* state) const { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }
void Xxh3Stream::update(const void* data, size_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), data, bytes);
}
uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(static_cast<XXH3_state_t*>(state_.get())); }

}  // namespace lockstep
