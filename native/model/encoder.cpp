// A post-norm transformer encoder (Marian, FSMT), and the projection of its states to the keys and values of the decoder.
//
// The tokens of all sentences are concatenated, without padding.
#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/self_attention.h"

namespace ibidem {

// The weights of an encoder, which Python owns; the layout is that of ibidem/native/engine.py.
struct EncoderLayerParts {
  const Linear *project, *outer;  // scaled query, key and value at once; the projection after attention
  const Linear *inner, *feed_outer;
  Norm norm, feed_norm;
};

struct EncoderParts {
  int64_t width, heads, layers;
  const EncoderLayerParts* layer;  // [layers]
  int64_t target_heads, target_layers;
  const Linear* const* target;  // [target_layers], key and value for a decoder layer at once
  const float* tokens;          // [token_count, width]
  const float* positions;       // [positions, width], that of the first token first
  int64_t token_count;
  float token_scale;
  int32_t activation;
};

namespace {

// Elements of keys and values for which waking another thread pays.
constexpr int64_t kLeastRead = 1 << 16;

class Encoding {
 public:
  // lengths: [sentences], none of them longer than `longest`.
  Encoding(const EncoderParts& parts, const int64_t* lengths, int64_t sentences, int64_t longest, int64_t threads)
      : parts_(parts), starts_(1, 0), longest_(longest), threads_(threads) {
    for (int64_t s = 0; s < sentences; ++s) starts_.push_back(starts_.back() + lengths[s]);
  }

  // tokens: [rows]; sources: for each decoder layer [2, sentences, heads, longest, size of a head], set only where a sentence
  // has tokens; means: [sentences, width], the mean state of each sentence, 0 where it has no tokens.
  void run(const int64_t* tokens, float* const* sources, float* means) {
    const int64_t rows = starts_.back(), width = parts_.width;
    int64_t inner = 0;
    for (int64_t i = 0; i < parts_.layers; ++i) inner = std::max(inner, parts_.layer[i].inner->outputs());
    float* x = buffers().x.of(rows * width);
    made_ = buffers().made.of(rows * std::max(3 * width, inner));
    found_ = buffers().found.of(rows * width);
    embed(tokens, x);
    for (int64_t i = 0; i < parts_.layers; ++i) apply_layer(parts_.layer[i], x);
    average(x, means);
    for (int64_t i = 0; i < parts_.target_layers; ++i) {
      if (i == 0) buffers().quantised.set(x, rows, width, threads_);
      parts_.target[i]->apply(buffers().quantised, Activation::kNone, made_, threads_);
      spread(sources[i]);
    }
  }

 private:
  struct Buffers {
    Scratch<float> x, made, found;
    QuantisedRows quantised;
  };

  // Reused by every batch of a thread.
  static Buffers& buffers() {
    static thread_local Buffers own;
    return own;
  }

  int64_t rows() const { return starts_.back(); }
  int64_t sentences() const { return static_cast<int64_t>(starts_.size()) - 1; }

  void embed(const int64_t* tokens, float* x) const {
    const int64_t width = parts_.width;
    for (int64_t s = 0; s < sentences(); ++s)
      for (int64_t row = starts_[s]; row < starts_[s + 1]; ++row) {
        const float* token = parts_.tokens + tokens[row] * width;
        const float* position = parts_.positions + (row - starts_[s]) * width;
        for (int64_t i = 0; i < width; ++i) x[row * width + i] = token[i] * parts_.token_scale + position[i];
      }
  }

  void apply(const Linear& linear, const float* x, Activation activation, float* out) {
    buffers().quantised.set(x, rows(), linear.inputs(), threads_);
    linear.apply(buffers().quantised, activation, out, threads_);
  }

  void apply_layer(const EncoderLayerParts& layer, float* x) {
    const int64_t width = parts_.width;
    apply(*layer.project, x, Activation::kNone, made_);
    attend();
    apply(*layer.outer, found_, Activation::kNone, made_);
    layer.norm.add_and_normalise(x, made_, rows(), width, threads_);
    apply(*layer.inner, x, static_cast<Activation>(parts_.activation), made_);
    apply(*layer.feed_outer, made_, Activation::kNone, found_);
    layer.feed_norm.add_and_normalise(x, found_, rows(), width, threads_);
  }

  // Attends from the queries, keys and values in made_ to found_.
  void attend() {
    const int64_t width = parts_.width, heads = parts_.heads, size = width / heads;
    const int64_t read = rows() * longest_ * width * 2;
    parallel_dynamic(threads_for(threads_, read, kLeastRead), sentences() * heads, [&] {
      static thread_local SelfAttention attention;  // its buffers are reused
      return [&](int64_t item) {
        const int64_t s = item / heads, row = starts_[s], place = item % heads * size;
        attention.attend(made_ + row * 3 * width + place, starts_[s + 1] - row, size, width, found_ + row * width + place);
      };
    });
  }

  void average(const float* x, float* means) const {
    const int64_t width = parts_.width;
    std::fill_n(means, sentences() * width, 0.0f);
    for (int64_t s = 0; s < sentences(); ++s) {
      float* mean = means + s * width;
      for (int64_t row = starts_[s]; row < starts_[s + 1]; ++row)
        for (int64_t i = 0; i < width; ++i) mean[i] += x[row * width + i];
      const float count = static_cast<float>(std::max<int64_t>(1, starts_[s + 1] - starts_[s]));
      for (int64_t i = 0; i < width; ++i) mean[i] /= count;
    }
  }

  // Copies the keys and values in made_ [rows, 2 x width] to the layout that the decoder reads.
  void spread(float* source) const {
    const int64_t width = parts_.width, heads = parts_.target_heads, size = width / heads;
    for (int64_t s = 0; s < sentences(); ++s)
      for (int64_t row = starts_[s]; row < starts_[s + 1]; ++row)
        for (int64_t part = 0; part < 2 * heads; ++part) {
          const int64_t kind = part / heads, head = part % heads;
          const int64_t place = ((kind * sentences() + s) * heads + head) * longest_ + row - starts_[s];
          std::copy_n(made_ + row * 2 * width + part * size, size, source + place * size);
        }
  }

  const EncoderParts& parts_;
  std::vector<int64_t> starts_;  // [sentences + 1], in rows
  int64_t longest_, threads_;
  float *made_ = nullptr, *found_ = nullptr;
};

}  // namespace
}  // namespace ibidem

// See Encoding; tokens: of all sentences, concatenated. Returns 1, 0 when out of memory, -1 where a token is not in the
// vocabulary.
IBIDEM_EXPORT int ibidem_encode(const ibidem::EncoderParts* parts, const int64_t* tokens, const int64_t* lengths,
                                int64_t sentences, int64_t longest, float* const* sources, float* means, int threads) {
  return ibidem::noexcept_call([&] {
    const int64_t* token = tokens;
    for (int64_t s = 0; s < sentences; ++s)
      for (int64_t i = 0; i < lengths[s]; ++i, ++token)
        if (*token < 0 || *token >= parts->token_count) return -1;
    ibidem::Encoding(*parts, lengths, sentences, longest, threads).run(tokens, sources, means);
    return 1;
  });
}
