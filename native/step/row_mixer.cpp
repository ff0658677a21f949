#include "step/row_mixer.h"

#include "base/buffer.h"
#include "step/values.h"

namespace ibidem {
namespace {

// The length of stored source vectors.
constexpr float kVectorLength = 127.0f;

}  // namespace

void EntryFetcher::add(int64_t row) {
  const int64_t* entries = entries_ + row * k_;
  for (int64_t i = 0; i < k_; ++i) {
    if (entries[i] < 0) continue;
    __builtin_prefetch(table_.values + entries[i]);
    if (table_.vectors == nullptr) continue;
    __builtin_prefetch(table_.log_probs + entries[i]);
    __builtin_prefetch(table_.sentences + entries[i]);
  }
  finish();
  last_ = row;
}

void EntryFetcher::finish() {
  if (last_ < 0 || table_.vectors == nullptr) return;
  const int64_t* entries = entries_ + last_ * k_;
  for (int64_t i = 0; i < k_; ++i) {
    // `look_up` reports entries beyond the table later.
    if (entries[i] < 0 || entries[i] >= table_.count) continue;
    fetch(table_.vectors + table_.sentences[entries[i]] * table_.dimension, table_.dimension);
  }
}

bool RowMixer::finish(int64_t row) const {
  if (!look_up(row)) return false;
  if (beam_ == nullptr) return true;
  weigh_row(row);
  mix_row(row);
  return true;
}

bool RowMixer::look_up(int64_t row) const {
  const int64_t first = row * k();
  const EntryTable& table = context_.entries;
  return look_up_values(table.values, table.count, out_.entries + first, k(), out_.values + first);
}

void RowMixer::weigh_row(int64_t row) const {
  const int64_t first = row * k();
  const RowWeights weights{out_.base + row, out_.weights + first};
  NeighbourRow neighbours{k(), out_.distances + first, out_.values + first, nullptr, nullptr, nullptr, nullptr};
  if (uses_context()) return weigh_with_context(row, neighbours);
  weigh(*context_.combiner, neighbours, weights);
}

void RowMixer::weigh_with_context(int64_t row, NeighbourRow& neighbours) const {
  static thread_local Scratch<float> buffer;
  float* base = buffer.of(3 * k() + 2);
  float *stored = base + k(), *distances = stored + k(), *top = distances + k();
  const int64_t* entries = out_.entries + row * k();
  for (int64_t i = 0; i < k(); ++i) {
    base[i] = beam_->mixture->log_prob(row, neighbours.values[i]);
    stored[i] = entries[i] < 0 ? 0.0f : context_.entries.log_probs[entries[i]];
    distances[i] = entries[i] < 0 ? 0.0f : source_distance(row, entries[i]);
  }
  beam_->mixture->top_log_probs(row, top);
  neighbours.base_log_probs = base;
  neighbours.stored_log_probs = stored;
  neighbours.source_distances = distances;
  neighbours.top_log_probs = top;
  weigh(*context_.combiner, neighbours, {out_.base + row, out_.weights + row * k()});
}

// 1 - cosine between the source that is translated and the source of an entry.
float RowMixer::source_distance(int64_t row, int64_t entry) const {
  const EntryTable& table = context_.entries;
  const float* mine = beam_->source_vectors + beam_->sentence_numbers[row / states_.group_size] * table.dimension;
  const int8_t* stored = table.vectors + table.sentences[entry] * table.dimension;
  Floats products = splat(0.0f);
  for_components(stored, table.dimension, [&](int64_t i, int count, Floats components) {
    products = fma(load_first(mine + i, count), components, products);
  });
  return 1.0f - sum(products) / kVectorLength;
}

void RowMixer::mix_row(int64_t row) const {
  beam_->mixture->mix(row, {out_.base, out_.values, out_.weights, k()}, beam_->scores + row * beam_->wanted,
                      beam_->tokens + row * beam_->wanted);
}

}  // namespace ibidem
