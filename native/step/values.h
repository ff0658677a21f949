// The tokens of entries.
#pragma once

#include <cstdint>

namespace ibidem {

// values: [count], table[entry] of each entry, table[0] for an absent one (-1). False where an entry is beyond the table.
inline bool look_up_values(const int64_t* table, int64_t size, const int64_t* entries, int64_t count, int64_t* values) {
  for (int64_t i = 0; i < count; ++i) {
    if (entries[i] >= size) return false;
    values[i] = table[entries[i] < 0 ? 0 : entries[i]];
  }
  return true;
}

}  // namespace ibidem
