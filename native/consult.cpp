// Everything that a step asks of a memory in one call: the compact states, their neighbours, the values and weights of these;
// and what comes of it, the best tokens of the mixture.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "buffer.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"

namespace ibidem {

struct MetaK;

// The parts of a memory, wherever they lie; the layout is that of native/consultation.py.
struct Consultation {
  const void* compactor;
  int64_t inputs;  // of the compactor
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
int ibidem_beams_silence(void*, float, float*, int64_t);
void ibidem_best_of_mixture(const float*, int64_t, int64_t, int64_t, const float*, const int64_t*, const float*, int64_t,
                            const uint8_t*, int64_t, int64_t, float*, int64_t*, int);
}

namespace ibidem {
namespace {

// The compact states [rows, outputs] of states [rows, inputs]; one that begins with NaN becomes NaN, at no cost.
bool compact(const void* compactor, const float* states, int64_t inputs, int64_t rows, float* out, int64_t outputs,
             int threads) {
  static thread_local std::vector<int64_t> asking;
  asking.clear();
  for (int64_t row = 0; row < rows; ++row)
    if (!std::isnan(states[row * inputs])) asking.push_back(row);
  const int64_t count = asking.size();
  if (count == rows) return ibidem_compactor_apply(compactor, states, rows, out, threads);
  static thread_local Scratch<float> room;
  float* given = room.of(count * (inputs + outputs));
  float* found = given + count * inputs;
  for (int64_t i = 0; i < count; ++i) std::copy_n(states + asking[i] * inputs, inputs, given + i * inputs);
  if (!ibidem_compactor_apply(compactor, given, count, found, threads)) return false;
  std::fill_n(out, rows * outputs, std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < count; ++i) std::copy_n(found + i * outputs, outputs, out + asking[i] * outputs);
  return true;
}

}  // namespace
}  // namespace ibidem

// states: [rows, inputs of the compactor], so many together of one sentence; distances, entries, values, weights: [rows, k]; base: [rows]. 1, or 0 where
// there is no room, or -1 where an entry is found whose value is not known.
IBIDEM_EXPORT int ibidem_consult(const ibidem::Consultation* parts, const float* states, int64_t rows,
                                 int64_t together, float* distances, int64_t* entries, int64_t* values, float* base,
                                 float* weights, int threads, int search_threads) {
  return ibidem::guard([&] {
    static thread_local ibidem::Scratch<float> room;
    float* queries = room.of(rows * parts->ivf->coding.dimension);
    const int64_t k = parts->settings->k;
    if (!ibidem::compact(parts->compactor, states, parts->inputs, rows, queries, parts->ivf->coding.dimension, threads) ||
        !ibidem_ivf_search(parts->ivf, parts->settings, parts->live, queries, rows, together, distances, entries,
                           search_threads))
      return 0;
    if (!ibidem_look_up(parts->values, parts->value_count, entries, rows * k, values)) return -1;
    return ibidem_metak_weigh(parts->metak, distances, values, rows, base, weights, threads);
  });
}

// The best tokens of the mixture, as ibidem_best_of_mixture gives them, for the hypotheses of `beams`: those more than
// `within` behind ask nobody, and their states are spoilt. 1, 0 or -1 as above.
IBIDEM_EXPORT int ibidem_choose(const ibidem::Consultation* parts, void* beams, float within, float* states, int64_t rows,
                                int64_t together, const float* logits, int64_t size, const uint8_t* banned,
                                int64_t banned_count, int64_t wanted, float* scores, int64_t* tokens, int threads,
                                int search_threads, int mixture_threads) {
  return ibidem::guard([&] {
    static thread_local ibidem::Scratch<float> floats;
    static thread_local ibidem::Scratch<int64_t> numbers;
    const int64_t k = parts->settings->k;
    float* distances = floats.of(rows * (2 * k + 1));
    float *weights = distances + rows * k, *base = weights + rows * k;
    int64_t* entries = numbers.of(2 * rows * k);
    int64_t* values = entries + rows * k;
    if (within < std::numeric_limits<float>::infinity() && !ibidem_beams_silence(beams, within, states, parts->inputs))
      return 0;
    const int done = ibidem_consult(parts, states, rows, together, distances, entries, values, base, weights, threads,
                                    search_threads);
    if (done == 1)
      ibidem_best_of_mixture(logits, rows, size, size, base, values, weights, k, banned, banned_count, wanted, scores,
                             tokens, mixture_threads);
    return done;
  });
}
