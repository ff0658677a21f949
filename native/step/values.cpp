#include "step/values.h"

#include "base/exports.h"

// See look_up_values. Returns 0 where an entry is beyond the table.
IBIDEM_EXPORT int ibidem_look_up(const int64_t* table, int64_t size, const int64_t* entries, int64_t count, int64_t* values) {
  return ibidem::look_up_values(table, size, entries, count, values);
}
