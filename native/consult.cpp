// Everything that a step asks of a memory in one call: the compact states, their neighbours, the values and weights of these;
// and what comes of it, the best tokens of the mixture.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "buffer.h"
#include "compactor.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "metak.h"
#include "mixture.h"

namespace ibidem {

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

// The compact states that are searched for, and what their neighbours weigh, on the threads that search.
class Questions : public Inquiry {
 public:
  Questions(const Consultation& parts, const Askers& askers, const Answer& answer)
      : parts_(parts), askers_(askers), answer_(answer), found_(askers.rows) {
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

  // 1, or -1 where an entry is found whose value is not known.
  int ask(int threads) {
    const Queries queries{queries_, askers_.rows, askers_.together, answer_.distances, answer_.entries};
    search(*parts_.ivf, *parts_.settings, {parts_.brief, this}, parts_.live, queries, threads);
    return unknown_ ? -1 : 1;
  }

  // A few rows are one thread's work, while others go on to what comes next.
  bool make_queries() override {
    bool last = false;
    for (int64_t part = next_part_++; part < parts_count(); part = next_part_++) {
      const int64_t begin = part * kRowsOfPart, count = std::min(kRowsOfPart, count_ - begin);
      parts_.compactor->apply(askers_.states, numbers_ + begin, count, queries_, 1);
      last = --left_ == 0;
    }
    return last;
  }
  void prepare() override {}
  bool briefly(int64_t) override { return false; }
  bool pass_time() override { return false; }
  // Their values lie anywhere: they come while others are searched for.
  void found(int64_t row) override {
    const int64_t* entries = answer_.entries + row * k();
    for (int64_t i = 0; i < k(); ++i)
      if (entries[i] >= 0) __builtin_prefetch(parts_.values + entries[i]);
    found_[row].store(true, std::memory_order_release);
  }
  void conclude() override {
    Weigher weigher(*parts_.metak);
    for (int64_t row = next_row_++; row < askers_.rows; row = next_row_++) {
      while (!found_[row].load(std::memory_order_acquire)) std::this_thread::yield();
      const int64_t first = row * k();
      int64_t* values = answer_.values + first;
      if (!ibidem_look_up(parts_.values, parts_.value_count, answer_.entries + first, k(), values)) {
        unknown_ = true;
        continue;
      }
      weigher.weigh(answer_.distances + first, values, answer_.base + row, answer_.weights + first);
      weighed(row);
    }
  }

 protected:
  // What is done with a row then.
  virtual void weighed(int64_t) {}

  int64_t k() const { return parts_.settings->k; }
  const Answer& answer() const { return answer_; }

 private:
  static constexpr int64_t kRowsOfPart = 16;
  // One at least, so that some thread has the last.
  int64_t parts_count() const { return std::max<int64_t>(1, (count_ + kRowsOfPart - 1) / kRowsOfPart); }

  const Consultation& parts_;
  const Askers& askers_;
  const Answer answer_;
  float* queries_;    // [rows, outputs of the compactor], NaN for who asks nobody
  int64_t* numbers_;  // of those who ask
  int64_t count_ = 0;
  std::atomic<int64_t> next_part_{0}, left_, next_row_{0};
  std::vector<std::atomic<bool>> found_;  // [rows]
  std::atomic<bool> unknown_{false};
};

}  // namespace

// Which hypotheses ask, and who of them briefly; the layout is that of native/consultation.py.
struct Asking {
  float within;        // farther behind the best of its sentence nobody asks
  float brief_behind;  // and farther than this briefly
  float brief_above;   // as does who gives some token more than this probability without a memory
};

namespace {

// Where the best tokens of the mixture go: [rows, wanted].
struct Chosen {
  float* scores;
  int64_t* tokens;
  int64_t wanted;
};

// Who is behind or sure asks briefly. How sure the base model is says the ranking of its tokens. That is soonest done while the
// logits are in the caches, but a few rows are left for threads that have to wait: whoever needs one of them ranks it.
class Hypotheses final : public Questions {
 public:
  // lags: [rows], how far each is behind.
  Hypotheses(const Consultation& parts, const Askers& askers, const Answer& answer, const Asking& asking, const float* lags,
             Mixture& mixture, const Chosen& chosen)
      : Questions(parts, askers, answer), asking_(asking), lags_(lags), mixture_(mixture), chosen_(chosen) {}

  bool briefly(int64_t row) override {
    return lags_[row] > asking_.brief_behind || mixture_.surety(row) > asking_.brief_above;
  }
  void prepare() override {
    while (mixture_.unranked() > kForLater) mixture_.rank_next();
  }
  bool pass_time() override { return mixture_.rank_next(); }

 private:
  void weighed(int64_t row) override {
    mixture_.mix(row, {answer().base, answer().values, answer().weights, k()}, chosen_.scores + row * chosen_.wanted,
                 chosen_.tokens + row * chosen_.wanted);
  }

  // Rows that are left for threads that have to wait.
  static constexpr int64_t kForLater = 8;

  const Asking& asking_;
  const float* lags_;
  Mixture& mixture_;
  const Chosen chosen_;
};

}  // namespace
}  // namespace ibidem

// states: [rows, inputs of the compactor], so many together of one sentence, and who begins with NaN asks nobody; distances,
// entries, values, weights: [rows, k]; base: [rows]. 1, or 0 where there is no room, or -1 where an entry is found whose value
// is not known.
IBIDEM_EXPORT int ibidem_consult(const ibidem::Consultation* parts, const float* states, int64_t rows,
                                 int64_t together, float* distances, int64_t* entries, int64_t* values, float* base,
                                 float* weights, int threads) {
  using namespace ibidem;
  return guard([&] {
    std::vector<uint8_t> silent(rows);
    for (int64_t row = 0; row < rows; ++row) silent[row] = std::isnan(states[row * parts->inputs]);
    const Askers askers{states, rows, together, silent.data()};
    return Questions(*parts, askers, {distances, entries, values, base, weights}).ask(threads);
  });
}

// The best tokens of the mixture, as ibidem_best_of_mixture gives them, for the hypotheses of `beams`. 1, 0 or -1 as above.
IBIDEM_EXPORT int ibidem_choose(const ibidem::Consultation* parts, const ibidem::Asking* asking, void* beams,
                                const float* states, int64_t rows, int64_t together, const float* logits, int64_t size,
                                const uint8_t* banned, int64_t banned_count, int64_t wanted, float* scores,
                                int64_t* tokens, int threads) {
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
    return Hypotheses(*parts, askers, answer, *asking, lags, mixture, {scores, tokens, wanted}).ask(threads);
  });
}
