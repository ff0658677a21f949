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
#include "mixture.h"

namespace ibidem {

struct MetaK;

// The parts of a memory, wherever they lie; the layout is that of native/consultation.py.
struct Consultation {
  const void* compactor;
  int64_t inputs;  // of the compactor
  const Ivf* ivf;
  const SearchSettings *settings, *brief;  // how far is looked, and how far for who asks briefly
  const uint16_t* live;
  const int64_t* values;
  int64_t value_count;
  const MetaK* metak;
};

}  // namespace ibidem

// What Python calls for each of the parts.
extern "C" {
int ibidem_compactor_apply(const void*, const float*, int64_t, float*, int);
int ibidem_look_up(const int64_t*, int64_t, const int64_t*, int64_t, int64_t*);
int ibidem_metak_weigh(const ibidem::MetaK*, const float*, const int64_t*, int64_t, float*, float*, int);
int ibidem_beams_silence(void*, float, float*, int64_t);
void ibidem_beams_lags(const void*, float*);
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

// What is found for the states of a step; distances, entries, values, weights: [rows, k]; base: [rows].
struct Answer {
  float* distances;
  int64_t *entries, *values;
  float *base, *weights;
};

// briefly: [rows] or null. 1, or 0 where there is no room, or -1 where an entry is found whose value is not known.
int consult(const Consultation& parts, const float* states, int64_t rows, int64_t together, const uint8_t* briefly,
            const Answer& answer, int threads, int search_threads) {
  static thread_local Scratch<float> room;
  float* queries = room.of(rows * parts.ivf->coding.dimension);
  if (!compact(parts.compactor, states, parts.inputs, rows, queries, parts.ivf->coding.dimension, threads)) return 0;
  search(*parts.ivf, *parts.settings, {parts.brief, briefly}, parts.live,
         {queries, rows, together, answer.distances, answer.entries}, search_threads);
  const int64_t found = rows * parts.settings->k;
  if (!ibidem_look_up(parts.values, parts.value_count, answer.entries, found, answer.values)) return -1;
  return ibidem_metak_weigh(parts.metak, answer.distances, answer.values, rows, answer.base, answer.weights, threads);
}

}  // namespace

// Which hypotheses ask, and who of them briefly; the layout is that of native/consultation.py.
struct Asking {
  float within;        // farther behind the best of its sentence nobody asks
  float brief_behind;  // and farther than this briefly
  float brief_above;   // as does who gives some token more than this probability without a memory
};

}  // namespace ibidem

// states: [rows, inputs of the compactor], so many together of one sentence; distances, entries, values, weights: [rows, k]; base: [rows]. 1, or 0 where
// there is no room, or -1 where an entry is found whose value is not known.
IBIDEM_EXPORT int ibidem_consult(const ibidem::Consultation* parts, const float* states, int64_t rows,
                                 int64_t together, float* distances, int64_t* entries, int64_t* values, float* base,
                                 float* weights, int threads, int search_threads) {
  return ibidem::guard([&] {
    return ibidem::consult(*parts, states, rows, together, nullptr, {distances, entries, values, base, weights}, threads,
                           search_threads);
  });
}

// The best tokens of the mixture, as ibidem_best_of_mixture gives them, for the hypotheses of `beams`; the states of those
// who ask nobody are spoilt. 1, 0 or -1 as above.
IBIDEM_EXPORT int ibidem_choose(const ibidem::Consultation* parts, const ibidem::Asking* asking, void* beams, float* states,
                                int64_t rows, int64_t together, const float* logits, int64_t size, const uint8_t* banned,
                                int64_t banned_count, int64_t wanted, float* scores, int64_t* tokens, int threads,
                                int search_threads, int mixture_threads) {
  using namespace ibidem;
  return guard([&] {
    static thread_local Scratch<float> floats;
    static thread_local Scratch<int64_t> numbers;
    static thread_local Scratch<uint8_t> flags;
    const int64_t k = parts->settings->k;
    float* distances = floats.of(rows * (2 * k + 2));
    int64_t* entries = numbers.of(2 * rows * k);
    const Answer answer{distances, entries, entries + rows * k, distances + 2 * rows * k, distances + rows * k};
    float* lags = answer.base + rows;
    uint8_t* briefly = flags.of(rows);
    Mixture mixture(logits, rows, size, size, banned, banned_count, wanted);
    mixture.rank(mixture_threads);
    ibidem_beams_lags(beams, lags);
    for (int64_t row = 0; row < rows; ++row)
      briefly[row] = lags[row] > asking->brief_behind || mixture.surety(row) > asking->brief_above;
    if (asking->within < std::numeric_limits<float>::infinity() &&
        !ibidem_beams_silence(beams, asking->within, states, parts->inputs))
      return 0;
    const int done = consult(*parts, states, rows, together, briefly, answer, threads, search_threads);
    if (done == 1) mixture.mix({answer.base, answer.values, answer.weights, k}, scores, tokens, mixture_threads);
    return done;
  });
}
