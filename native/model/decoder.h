// One step of a post-norm transformer decoder (Marian, FSMT) for the hypotheses of several sentences.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "model/attention.h"
#include "model/linear.h"
#include "model/norm.h"

namespace ibidem {

// The weights of a decoder, which Python owns; the layout is that of ibidem/native/engine.py.
struct LayerParts {
  const Linear *project, *outer;  // scaled query, key and value of a hypothesis at once; the projection after attention
  const Linear *source_query, *source_outer;
  const Linear *inner, *feed_outer;
  Norm norm, source_norm, feed_norm;
};

struct DecoderParts {
  int64_t width, heads, layers;
  const LayerParts* layer;  // [layers]
  const Linear* output;
  const float* tokens;     // [token_count, width]
  const float* positions;  // [positions, width], that of the first token first
  int64_t token_count;
  float token_scale;
  int32_t activation;
};

// The decoder's state for a batch of sentences with `beam` hypotheses each.
//
// All hypotheses of a sentence write their keys and values into one cache, which is never moved. For every step a hypothesis
// stores the slot of the beam that holds its history, and reordering moves these numbers only.
class Decoding {
 public:
  // sources: keys and values of the sources for each layer [2, sentences, heads, length, size of a head], which must stay in
  // place; lengths: [sentences], the number of valid positions of each.
  Decoding(const DecoderParts& parts, const float* const* sources, const int64_t* lengths, int64_t sentences, int64_t length,
           int64_t beam);

  // Whether all tokens [rows] are in the vocabulary, and whether the rows are whole sentences, each once.
  bool valid_tokens(const int64_t* tokens) const;
  bool valid_rows(const int64_t* rows, int64_t count) const;

  // tokens: [rows]; states: [rows, width]; logits: [rows, vocabulary].
  void step(const int64_t* tokens, float* states, float* logits, int64_t threads);
  // Keeps these rows: all hypotheses of the remaining sentences, sentence by sentence.
  void reorder(const int64_t* rows, int64_t count);

 private:
  static constexpr int64_t kChunkSteps = 32;

  struct Sentence {
    int64_t source;  // its number among the sources
    int64_t length;
    // For each 32 steps: [layers, 2, heads, steps x beam, size of a head].
    std::vector<std::shared_ptr<Buffer<float>>> cache;
  };

  int64_t rows() const { return static_cast<int64_t>(sentences_.size()) * beam_; }
  void embed(const int64_t* tokens, float* x) const;
  void extend_cache();
  void apply(const Linear& linear, const float* x, Activation activation, float* out, int64_t threads);
  void apply_layer(int64_t number, float* x, int64_t threads);
  void attend_history(int64_t layer, const float* made, float* found, int64_t threads);
  void attend_source(int64_t layer, const float* queries, float* found, int64_t threads);
  // The key of a head at a step in slot 0; its value lies value_offset() behind it.
  float* cached(const Sentence& sentence, int64_t layer, int64_t head, int64_t step) const;
  int64_t value_offset() const { return parts_.heads * kChunkSteps * beam_ * size_; }

  DecoderParts parts_;
  std::vector<LayerParts> layers_;
  std::vector<const float*> sources_;
  int64_t source_count_, source_length_, beam_, size_;
  int64_t steps_ = 0;
  std::vector<Sentence> sentences_;
  std::vector<std::vector<uint16_t>> slots_;  // [steps, rows]: the slot of a hypothesis' ancestor
  QuantisedRows quantised_;
  Scratch<float> made_, found_, hidden_;
};

}  // namespace ibidem
