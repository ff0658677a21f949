// Looking up the values of entries.
#include <cstdint>

#include "exports.h"

// values: [count], table[entry] of each entry, that of the first where there is none (-1); 0 where one is not in the table.
IBIDEM_EXPORT int ibidem_look_up(const int64_t* table, int64_t size, const int64_t* entries, int64_t count,
                                 int64_t* values) {
  for (int64_t i = 0; i < count; ++i) {
    if (entries[i] >= size) return 0;
    values[i] = table[entries[i] < 0 ? 0 : entries[i]];
  }
  return 1;
}
