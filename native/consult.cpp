// Everything that a step asks of a memory in one call: the compact states, their neighbours, the values and weights of these.
#include <cstdint>

#include "buffer.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"

namespace ibidem {

struct MetaK;

// The parts of a memory, wherever they lie; the layout is that of native/consultation.py.
struct Consultation {
  const void* compactor;
  const Ivf* ivf;
  const SearchSettings* settings;
  const uint16_t* live;
  const int64_t* values;
  int64_t value_count;
  const MetaK* metak;
};

}  // namespace ibidem

// What Python calls for each of the parts.
extern "C" {
int ibidem_compactor_apply(const void*, const float*, int64_t, float*, int);
int ibidem_ivf_search(const ibidem::Ivf*, const ibidem::SearchSettings*, const uint16_t*, const float*, int64_t, int64_t,
                      float*, int64_t*, int);
int ibidem_look_up(const int64_t*, int64_t, const int64_t*, int64_t, int64_t*);
int ibidem_metak_weigh(const ibidem::MetaK*, const float*, const int64_t*, int64_t, float*, float*, int);
}

// states: [rows, inputs of the compactor], so many together of one sentence; distances, entries, values, weights: [rows, k]; base: [rows]. 1, or 0 where
// there is no room, or -1 where an entry is found whose value is not known.
IBIDEM_EXPORT int ibidem_consult(const ibidem::Consultation* parts, const float* states, int64_t rows,
                                 int64_t together, float* distances, int64_t* entries, int64_t* values, float* base,
                                 float* weights, int threads, int search_threads) {
  return ibidem::guard([&] {
    static thread_local ibidem::Scratch<float> room;
    float* queries = room.of(rows * parts->ivf->coding.dimension);
    const int64_t k = parts->settings->k;
    if (!ibidem_compactor_apply(parts->compactor, states, rows, queries, threads) ||
        !ibidem_ivf_search(parts->ivf, parts->settings, parts->live, queries, rows, together, distances, entries,
                           search_threads))
      return 0;
    if (!ibidem_look_up(parts->values, parts->value_count, entries, rows * k, values)) return -1;
    return ibidem_metak_weigh(parts->metak, distances, values, rows, base, weights, threads);
  });
}
