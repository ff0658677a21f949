#include "model/decoder.h"

#include <algorithm>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "simd/simd.h"

namespace ibidem {
namespace {

// Elements of keys and values for which waking another thread pays.
constexpr int64_t kLeastRead = 1 << 16;

}  // namespace

Decoding::Decoding(const DecoderParts& parts, const float* const* sources, const int64_t* lengths, int64_t sentences,
                   int64_t length, int64_t beam)
    : parts_(parts),
      layers_(parts.layer, parts.layer + parts.layers),
      sources_(sources, sources + parts.layers),
      source_count_(sentences),
      source_length_(length),
      beam_(beam),
      size_(parts.width / parts.heads) {
  for (int64_t s = 0; s < sentences; ++s) sentences_.push_back({s, lengths[s], {}});
}

bool Decoding::valid_tokens(const int64_t* tokens) const {
  return std::all_of(tokens, tokens + rows(), [&](int64_t token) { return token >= 0 && token < parts_.token_count; });
}

bool Decoding::valid_rows(const int64_t* rows, int64_t count) const {
  std::vector<bool> taken(sentences_.size());
  if (count % beam_ != 0) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= this->rows() || rows[i] / beam_ != rows[i - i % beam_] / beam_) return false;
    if (i % beam_ != 0) continue;
    if (taken[rows[i] / beam_]) return false;
    taken[rows[i] / beam_] = true;
  }
  return true;
}

void Decoding::step(const int64_t* tokens, float* states, float* logits, int64_t threads) {
  extend_cache();
  slots_.emplace_back(rows());
  for (int64_t row = 0; row < rows(); ++row) slots_.back()[row] = static_cast<uint16_t>(row % beam_);
  embed(tokens, states);
  for (int64_t layer = 0; layer < parts_.layers; ++layer) apply_layer(layer, states, threads);
  ++steps_;
  apply(*parts_.output, states, Activation::kNone, logits, threads);
}

void Decoding::reorder(const int64_t* rows, int64_t count) {
  for (auto& slots : slots_) {
    std::vector<uint16_t> chosen(count);
    for (int64_t i = 0; i < count; ++i) chosen[i] = slots[rows[i]];
    slots = std::move(chosen);
  }
  std::vector<Sentence> kept;
  for (int64_t i = 0; i < count; i += beam_) kept.push_back(std::move(sentences_[rows[i] / beam_]));
  sentences_ = std::move(kept);
}

void Decoding::embed(const int64_t* tokens, float* x) const {
  const float* position = parts_.positions + steps_ * parts_.width;
  for (int64_t row = 0; row < rows(); ++row) {
    const float* token = parts_.tokens + tokens[row] * parts_.width;
    float* place = x + row * parts_.width;
    for (int64_t i = 0; i < parts_.width; ++i) place[i] = token[i] * parts_.token_scale + position[i];
  }
}

void Decoding::extend_cache() {
  if (steps_ % kChunkSteps != 0) return;
  const size_t chunk = parts_.layers * 2 * value_offset();
  for (Sentence& sentence : sentences_) sentence.cache.push_back(std::make_shared<Buffer<float>>(chunk));
}

void Decoding::apply(const Linear& linear, const float* x, Activation activation, float* out, int64_t threads) {
  quantised_.set(x, rows(), linear.inputs(), threads);
  linear.apply(quantised_, activation, out, threads);
}

void Decoding::apply_layer(int64_t number, float* x, int64_t threads) {
  const LayerParts& layer = layers_[number];
  const int64_t rows = this->rows(), width = parts_.width;
  float* made = made_.of(rows * 3 * width);
  float* found = found_.of(rows * width);
  float* hidden = hidden_.of(rows * layer.inner->outputs());

  apply(*layer.project, x, Activation::kNone, made, threads);
  attend_history(number, made, found, threads);
  apply(*layer.outer, found, Activation::kNone, made, threads);
  layer.norm.add_and_normalise(x, made, rows, width, threads);

  apply(*layer.source_query, x, Activation::kNone, made, threads);
  attend_source(number, made, found, threads);
  apply(*layer.source_outer, found, Activation::kNone, made, threads);
  layer.source_norm.add_and_normalise(x, made, rows, width, threads);

  apply(*layer.inner, x, static_cast<Activation>(parts_.activation), hidden, threads);
  apply(*layer.feed_outer, hidden, Activation::kNone, made, threads);
  layer.feed_norm.add_and_normalise(x, made, rows, width, threads);
}

float* Decoding::cached(const Sentence& sentence, int64_t layer, int64_t head, int64_t step) const {
  float* chunk = sentence.cache[step / kChunkSteps]->get();
  return chunk + layer * 2 * value_offset() + (head * kChunkSteps + step % kChunkSteps) * beam_ * size_;
}

void Decoding::attend_history(int64_t layer, const float* made, float* found, int64_t threads) {
  const int64_t width = parts_.width, heads = parts_.heads;
  const int64_t read = rows() * (steps_ + 1) * width * 2;
  parallel_dynamic(threads_for(threads, read, kLeastRead), rows() / beam_ * heads, [&] {
    static thread_local Attention attention;  // its buffers are reused
    return [&](int64_t item) {
      const int64_t number = item / heads, head = item % heads;
      const Sentence& sentence = sentences_[number];
      const float* first = made + number * beam_ * 3 * width + head * size_;  // query, key and value lie `width` apart
      float* now = cached(sentence, layer, head, steps_);
      for (int64_t b = 0; b < beam_; ++b) {
        const float* own = first + b * 3 * width;
        std::copy_n(own + width, size_, now + b * size_);
        std::copy_n(own + 2 * width, size_, now + b * size_ + value_offset());
      }
      for (int64_t b = 0; b < beam_; ++b) {
        attention.clear();
        for (int64_t step = 0; step <= steps_; ++step) {
          const float* key = cached(sentence, layer, head, step) + slots_[step][number * beam_ + b] * size_;
          attention.add(key, key + value_offset());
        }
        attention.attend(first + b * 3 * width, size_, found + (number * beam_ + b) * width + head * size_);
      }
    };
  });
}

void Decoding::attend_source(int64_t layer, const float* queries, float* found, int64_t threads) {
  const int64_t width = parts_.width, heads = parts_.heads;
  const int64_t value = source_count_ * heads * source_length_ * size_;
  const int64_t read = rows() * source_length_ * width * 2;
  parallel_dynamic(threads_for(threads, read, kLeastRead), rows() / beam_ * heads, [&] {
    static thread_local Attention attention;  // its buffers are reused
    return [&](int64_t item) {
      const int64_t number = item / heads, head = item % heads;
      const Sentence& sentence = sentences_[number];
      const float* keys = sources_[layer] + (sentence.source * heads + head) * source_length_ * size_;
      attention.clear();
      for (int64_t i = 0; i < sentence.length; ++i) attention.add(keys + i * size_, keys + i * size_ + value);
      for (int64_t b = 0; b < beam_; ++b) {
        const int64_t place = (number * beam_ + b) * width + head * size_;
        attention.attend(queries + place, size_, found + place);
      }
    };
  });
}

}  // namespace ibidem

// See Decoding. Returns null when out of memory.
IBIDEM_EXPORT void* ibidem_decoding_new(const ibidem::DecoderParts* parts, const float* const* sources, const int64_t* lengths,
                                        int64_t sentences, int64_t length, int64_t beam) {
  return ibidem::noexcept_call([&] { return new ibidem::Decoding(*parts, sources, lengths, sentences, length, beam); });
}

IBIDEM_EXPORT void ibidem_decoding_free(void* decoding) { delete static_cast<ibidem::Decoding*>(decoding); }

// Returns 1, 0 when out of memory, -1 where a token is not in the vocabulary.
IBIDEM_EXPORT int ibidem_decoding_step(void* decoding, const int64_t* tokens, float* states, float* logits, int threads) {
  return ibidem::noexcept_call([&] {
    auto* self = static_cast<ibidem::Decoding*>(decoding);
    if (!self->valid_tokens(tokens)) return -1;
    self->step(tokens, states, logits, threads);
    return 1;
  });
}

// Returns 1, 0 when out of memory, -1 where the rows are not whole sentences, each once.
IBIDEM_EXPORT int ibidem_decoding_reorder(void* decoding, const int64_t* rows, int64_t count) {
  return ibidem::noexcept_call([&] {
    auto* self = static_cast<ibidem::Decoding*>(decoding);
    if (!self->valid_rows(rows, count)) return -1;
    self->reorder(rows, count);
    return 1;
  });
}
