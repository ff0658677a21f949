// Everything that a step asks of a memory in one call: the compact states, their neighbours, the values and weights of these;
// and what comes of it, the best tokens of the mixture.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "buffer.h"
#include "compactor.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "mixture.h"

namespace ibidem {

struct MetaK;

// The parts of a memory, wherever they lie; the layout is that of native/consultation.py.
struct Consultation {
  const Compactor* compactor;
  int64_t inputs;  // of the compactor
  const Ivf* ivf;
  const SearchSettings *settings, *brief;  // how far is looked, and how far for who asks briefly
  const uint16_t* live;
  const int64_t* values;
  int64_t value_count;
  const MetaK* metak;
};

}  // namespace ibidem

// What Python calls for some of the parts.
extern "C" {
int ibidem_look_up(const int64_t*, int64_t, const int64_t*, int64_t, int64_t*);
int ibidem_metak_weigh(const ibidem::MetaK*, const float*, const int64_t*, int64_t, float*, float*, int);
int ibidem_beams_silence(void*, float, uint8_t*);
void ibidem_beams_lags(const void*, float*);
}

namespace ibidem {
namespace {

// Who asks: states [rows, inputs], so many together of one sentence; silent: [rows], 1 for who asks nobody.
struct Askers {
  const float* states;
  int64_t rows, together;
  const uint8_t* silent;
};

// What is found for them; distances, entries, values, weights: [rows, k]; base: [rows].
struct Answer {
  float* distances;
  int64_t *entries, *values;
  float *base, *weights;
};

// Makes the compact states that are searched for, on the threads that search. A few rows are one thread's work, while others
// go on to what comes next.
class Compaction : public Inquiry {
 public:
  Compaction(const Consultation& parts, const Askers& askers) : parts_(parts), askers_(askers) {
    static thread_local Scratch<float> room;
    static thread_local Scratch<int64_t> numbers;
    const int64_t outputs = parts.ivf->coding.dimension;
    queries_ = room.of(askers.rows * outputs);
    numbers_ = numbers.of(askers.rows);
    for (int64_t row = 0; row < askers.rows; ++row) {
      if (askers.silent[row])
        std::fill_n(queries_ + row * outputs, outputs, std::numeric_limits<float>::quiet_NaN());
      else
        numbers_[count_++] = row;
    }
    left_ = parts_count();
  }

  // [rows, outputs of the compactor], NaN for who asks nobody; once they are made.
  const float* queries() const { return queries_; }

  bool make_queries() override {
    bool last = false;
    for (int64_t part = next_++; part < parts_count(); part = next_++) {
      const int64_t begin = part * kRowsOfPart, count = std::min(kRowsOfPart, count_ - begin);
      parts_.compactor->apply(askers_.states, numbers_ + begin, count, queries_, 1);
      last = --left_ == 0;
    }
    return last;
  }
  void rank() override {}
  bool briefly(int64_t) override { return false; }
  // Their values lie anywhere: they come while others are searched for.
  void found(const int64_t* entries) override {
    for (int64_t i = 0; i < parts_.settings->k; ++i)
      if (entries[i] >= 0) __builtin_prefetch(parts_.values + entries[i]);
  }

 private:
  static constexpr int64_t kRowsOfPart = 16;
  // One at least, so that some thread has the last.
  int64_t parts_count() const { return std::max<int64_t>(1, (count_ + kRowsOfPart - 1) / kRowsOfPart); }

  const Consultation& parts_;
  const Askers& askers_;
  float* queries_;
  int64_t* numbers_;  // of those who ask
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0}, left_;
};

// 1, or 0 where there is no room, or -1 where an entry is found whose value is not known.
int consult(const Consultation& parts, const Askers& askers, Compaction& compaction, const Answer& answer, int threads,
            int search_threads) {
  const Queries queries{compaction.queries(), askers.rows, askers.together, answer.distances, answer.entries};
  search(*parts.ivf, *parts.settings, {parts.brief, &compaction}, parts.live, queries, search_threads);
  const int64_t found = askers.rows * parts.settings->k;
  if (!ibidem_look_up(parts.values, parts.value_count, answer.entries, found, answer.values)) return -1;
  return ibidem_metak_weigh(parts.metak, answer.distances, answer.values, askers.rows, answer.base, answer.weights, threads);
}

}  // namespace

// Which hypotheses ask, and who of them briefly; the layout is that of native/consultation.py.
struct Asking {
  float within;        // farther behind the best of its sentence nobody asks
  float brief_behind;  // and farther than this briefly
  float brief_above;   // as does who gives some token more than this probability without a memory
};

namespace {

// Who is behind or sure asks briefly. How sure the base model is says the ranking of its tokens, which is shared among the
// threads that search: who is done with it begins to search, and need not wait for the others.
class Hypotheses final : public Compaction {
 public:
  // lags: [rows], how far each is behind.
  Hypotheses(const Consultation& parts, const Askers& askers, Mixture& mixture, const Asking& asking, const float* lags)
      : Compaction(parts, askers), mixture_(mixture), asking_(asking), lags_(lags) {}

  void rank() override { mixture_.rank(); }
  bool briefly(int64_t row) override {
    return lags_[row] > asking_.brief_behind || mixture_.surety(row) > asking_.brief_above;
  }

 private:
  Mixture& mixture_;
  const Asking& asking_;
  const float* lags_;
};

}  // namespace
}  // namespace ibidem

// states: [rows, inputs of the compactor], so many together of one sentence, and who begins with NaN asks nobody; distances,
// entries, values, weights: [rows, k]; base: [rows]. 1, or 0 where there is no room, or -1 where an entry is found whose value
// is not known.
IBIDEM_EXPORT int ibidem_consult(const ibidem::Consultation* parts, const float* states, int64_t rows,
                                 int64_t together, float* distances, int64_t* entries, int64_t* values, float* base,
                                 float* weights, int threads, int search_threads) {
  return ibidem::guard([&] {
    std::vector<uint8_t> silent(rows);
    for (int64_t row = 0; row < rows; ++row) silent[row] = std::isnan(states[row * parts->inputs]);
    const ibidem::Askers askers{states, rows, together, silent.data()};
    ibidem::Compaction compaction(*parts, askers);
    return ibidem::consult(*parts, askers, compaction, {distances, entries, values, base, weights}, threads, search_threads);
  });
}

// The best tokens of the mixture, as ibidem_best_of_mixture gives them, for the hypotheses of `beams`. 1, 0 or -1 as above.
IBIDEM_EXPORT int ibidem_choose(const ibidem::Consultation* parts, const ibidem::Asking* asking, void* beams,
                                const float* states, int64_t rows, int64_t together, const float* logits, int64_t size,
                                const uint8_t* banned, int64_t banned_count, int64_t wanted, float* scores,
                                int64_t* tokens, int threads, int search_threads, int mixture_threads) {
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
    uint8_t* silent = flags.of(rows);
    Mixture mixture(logits, rows, size, size, banned, banned_count, wanted);
    mixture.make_room();
    ibidem_beams_lags(beams, lags);
    std::fill_n(silent, rows, 0);
    if (asking->within < std::numeric_limits<float>::infinity() && !ibidem_beams_silence(beams, asking->within, silent))
      return 0;
    const Askers askers{states, rows, together, silent};
    Hypotheses hypotheses(*parts, askers, mixture, *asking, lags);
    const int done = consult(*parts, askers, hypotheses, answer, threads, search_threads);
    if (done == 1) mixture.mix({answer.base, answer.values, answer.weights, k}, scores, tokens, mixture_threads);
    return done;
  });
}
