#include "weights.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace ep {
namespace {

/// Four strands of multiplications, so that hashing runs at the memory's speed.
uint64_t hash_of(const std::byte *data, size_t bytes) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15u;
  uint64_t strands[4] = {kPrime ^ bytes, kPrime * 3, kPrime * 5, kPrime * 7};
  const auto mix = [&](uint64_t &strand, uint64_t word) {
    strand = (strand ^ word) * kPrime;
    strand ^= strand >> 29;
  };
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32)
    for (int i = 0; i < 4; ++i) {
      uint64_t word;
      std::memcpy(&word, data + at + 8 * i, 8);
      mix(strands[i], word);
    }
  for (; at < bytes; ++at)
    mix(strands[0], static_cast<uint64_t>(data[at]));
  for (int i = 1; i < 4; ++i)
    mix(strands[0], strands[i]);
  return strands[0];
}

struct Cache {
  std::mutex mutex;
  std::unordered_multimap<std::string, std::weak_ptr<const Weights>> known;
};

Cache &cache() {
  static auto *made = new Cache; // outlives the programs, which may die late
  return *made;
}

} // namespace

std::shared_ptr<const Weights> shared_weights(const WeightsKey &key, size_t size,
                                              const std::function<void(std::byte *)> &pack) {
  const std::string name = key.layout + "/" + std::to_string(hash_of(key.data, key.bytes));
  auto made = std::make_shared<Weights>();
  made->memory = allocate(size);
  made->bytes = size;
  pack(made->memory.get());
  Cache &all = cache();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.known.equal_range(name);
  for (auto at = begin; at != end;) {
    const std::shared_ptr<const Weights> held = at->second.lock();
    if (held == nullptr) {
      at = all.known.erase(at);
      continue;
    }
    if (held->bytes == size && std::memcmp(held->memory.get(), made->memory.get(), size) == 0)
      return held;
    ++at;
  }
  all.known.emplace(name, made);
  return made;
}

size_t living_weights() {
  Cache &all = cache();
  const std::lock_guard lock(all.mutex);
  size_t count = 0;
  for (const auto &[name, weak] : all.known)
    count += !weak.expired();
  return count;
}

} // namespace ep
