// The retrieval step as the library exports it: with an index here, or with a search in other processes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/buffer.h"
#include "base/exports.h"
#include "base/noexcept_call.h"
#include "step/beams.h"
#include "step/remote_step.h"
#include "step/retrieval_step.h"

namespace ibidem {
namespace {

StepStatus run_step(const RetrievalContext& context, const RemoteSearch* remote, const StateBatch& states,
                    const Retrieved& out, const BeamMixture* beam, int threads) {
  if (remote != nullptr) return RemoteStep(context, *remote, states, out, beam).run(threads);
  return RetrievalStep(context, states, out, beam).run(threads);
}

}  // namespace
}  // namespace ibidem

// Retrieves the neighbours of states [rows, inputs], of which each group_size are of one sentence; a row that begins with NaN
// does not retrieve. remote: null where the context has an index. For the rest see Retrieved. Returns a StepStatus, or 0 when
// out of memory.
IBIDEM_EXPORT int ibidem_retrieve(const ibidem::RetrievalContext* context, const ibidem::RemoteSearch* remote,
                                  const float* states, int64_t rows, int64_t group_size, float* distances, int64_t* entries,
                                  int64_t* values, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    if (RemoteStep::is_searching()) return static_cast<int>(StepStatus::kNested);
    std::vector<uint8_t> skipped(rows);
    for (int64_t row = 0; row < rows; ++row) skipped[row] = std::isnan(states[row * context->inputs]);
    const StateBatch batch{states, rows, group_size, skipped.data()};
    const Retrieved out{distances, entries, values, nullptr, nullptr};
    return static_cast<int>(run_step(*context, remote, batch, out, nullptr, threads));
  });
}

// Retrieves for the hypotheses of `beams` and returns the best tokens of the mixture, as ibidem_best_of_mixture does;
// source_vectors: [sentences of the batch, dimension of source vectors], of length 1, null where the combiner does not need
// them. Returns a StepStatus, or 0 when out of memory.
IBIDEM_EXPORT int ibidem_retrieve_and_mix(const ibidem::RetrievalContext* context, const ibidem::RemoteSearch* remote,
                                          const ibidem::RetrievalPolicy* policy, void* beams, const float* states,
                                          int64_t rows, int64_t group_size, const float* source_vectors, const float* logits,
                                          int64_t size, const uint8_t* banned, int64_t banned_count, int64_t wanted,
                                          float* scores, int64_t* tokens, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    if (RemoteStep::is_searching()) return static_cast<int>(StepStatus::kNested);
    static thread_local Scratch<float> floats;
    static thread_local Scratch<int64_t> numbers;
    static thread_local Scratch<uint8_t> flags;
    auto& hypotheses = *static_cast<Beams*>(beams);
    const int64_t k = context->k();
    float* distances = floats.of(rows * (2 * k + 2 + wanted));
    int64_t* entries = numbers.of(2 * rows * k + rows);
    const Retrieved out{distances, entries, entries + rows * k, distances + 2 * rows * k, distances + rows * k};
    float* score_gaps = out.base + rows;
    uint8_t* skipped = flags.of(rows);
    Mixture mixture(logits, rows, size, size, banned, banned_count, wanted);
    mixture.allocate();
    hypotheses.score_gaps(score_gaps);
    std::fill_n(skipped, rows, 0);
    if (policy->margin < std::numeric_limits<float>::infinity()) hypotheses.mask_lagging(policy->margin, skipped);
    const StateBatch batch{states, rows, group_size, skipped};
    int64_t* sentence_numbers = entries + 2 * rows * k;
    hypotheses.numbers(sentence_numbers);
    const BeamMixture beam{*policy, score_gaps, &mixture, source_vectors, sentence_numbers, wanted, scores, tokens};
    const StepStatus status = run_step(*context, remote, batch, out, &beam, threads);
    if (status != StepStatus::kDone) return static_cast<int>(status);
    float* base_log_probs = score_gaps + rows;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = row * wanted; i < (row + 1) * wanted; ++i) base_log_probs[i] = mixture.log_prob(row, tokens[i]);
    hypotheses.record_states(out.base, distances, entries, k);
    hypotheses.record_candidates(tokens, base_log_probs, wanted);
    return static_cast<int>(status);
  });
}
