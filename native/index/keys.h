// The keys of a memory, where its segments hold them. An index refers to a key by its entry and has no copy of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simd/simd.h"

namespace ibidem {

// The keys of consecutive entries: those of one segment.
struct KeyChunk {
  const void* keys;  // [entries of the chunk, dimension]
  int64_t first;     // entry
};

// The layout is that of ibidem/native/ivf.py, which owns the arrays.
struct Keys {
  const KeyChunk* chunks;       // by entry, and one more that begins behind the last entry
  const int32_t* first_chunks;  // the chunk of the entries 0, 2^shift, 2 x 2^shift ...
  int64_t shift;
  int64_t dimension;
  int64_t component_bytes;     // 1: int8, 2: float16, 4: float32
  const float *offset, *step;  // [dimension], for int8: a component is offset + step x code

  int64_t key_bytes() const { return dimension * component_bytes; }

  const void* find(int64_t entry) const {
    const KeyChunk* chunk = chunks + first_chunks[entry >> shift];
    while (entry >= chunk[1].first) ++chunk;
    return static_cast<const char*>(chunk->keys) + (entry - chunk->first) * key_bytes();
  }

  // Decodes a key; row: [dimension].
  void read(int64_t entry, float* row) const;
};

// Loads 16 components of a key; those of int8 as codes.
inline Floats load_key(const float* key) { return load(key); }
inline Floats load_key(const uint16_t* key) { return load_half(key); }
inline Floats load_key(const int8_t* key) { return load_bytes(key); }

// Calls visit(i, count, components) for each 16 components of a key, of which the last are padded with zeros.
template <class Key, class Visit>
__attribute__((always_inline)) inline void for_components(const Key* key, int64_t dimension, Visit visit) {
  int64_t i = 0;
  for (; i + kLanes <= dimension; i += kLanes) visit(i, kLanes, load_key(key + i));
  if (i == dimension) return;
  Key rest[kLanes] = {};
  std::copy(key + i, key + dimension, rest);
  visit(i, static_cast<int>(dimension - i), load_key(rest));
}

// Calls a function with a zero of the type that the components of keys have.
template <class Function>
void with_component_type(const Keys& keys, Function function) {
  if (keys.component_bytes == 1)
    function(int8_t{0});
  else if (keys.component_bytes == 2)
    function(uint16_t{0});
  else
    function(0.0f);
}

inline void Keys::read(int64_t entry, float* row) const {
  with_component_type(*this, [&](auto zero) {
    for_components(static_cast<const decltype(zero)*>(find(entry)), dimension, [&](int64_t i, int count, Floats components) {
      if (component_bytes == 1) components = fma(components, load_first(step + i, count), load_first(offset + i, count));
      store_first(row + i, components, count);
    });
  });
}

}  // namespace ibidem
