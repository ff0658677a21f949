"""Batched beam search over a base model and a scorer.

Without a memory, the search finds token for token what `generate()` of transformers finds with the same beam, length
penalty, limits and prefix and with early stopping off; other generation settings are not read. As there, the score of a
hypothesis is its log-probability divided by length ** length_penalty. A sentence is finished when its best running
hypothesis, scored at its present length, cannot replace the worst of `beam` finished ones. With beam 1 the search is
greedy and stops at the first end of sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ibidem.combine import Candidates, Sources, StepContext, Weights, best_candidates, score_tokens
from ibidem.decode.beams import Beams, Hypothesis, NativeBeamState, Rules, begin_beams, force_tokens
from ibidem.decode.cuda_graph import CudaGraphSearch
from ibidem.decode.retrieval_policy import default_margin, make_policy
from ibidem.decode.scorer import NativeScorer, pack_entries
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode.scorer import Retrieved, Scorer
    from ibidem.model import BaseModel, Step


# Called before every decoding step; an exception that it raises ends the search.
Check = Callable[[], None]

# (logits [r, V], weights, values [r, K], count, banned tokens) -> the best tokens of the mixture
BestTokens = Callable[[Tensor, Weights, Tensor, int, Tensor | None], Candidates]

_MAX_LENGTH_PENALTY = 10


def never_stop() -> None:
    """Do nothing: the check of a search that is not interrupted."""


@dataclass(frozen=True)
class SearchSettings:
    """The settings of beam search.

    Attributes:
        beam: The number of hypotheses of a sentence, at least 1; 1 is greedy search.
        length_penalty: The exponent of the length by which log-probabilities are divided; 0 for no normalisation.
        max_length_ratio: A translation has at most `max_length_ratio` * source tokens + `max_length_extra` tokens, its
            end included.
        max_length_extra: See `max_length_ratio`.
        n_best: The number of translations to return for a sentence, 1 to `beam`.
        retrieval_margin: A hypothesis whose log-probability is more than this below the best one of its sentence skips
            the search in the memories. With a finite margin, native indexes also probe fewer lists for hypotheses a
            little below the best, and where the model's best token is very probable. None for the default: 3 on a CPU;
            inf, a full search for every hypothesis, on a GPU.

    Raises:
        UsageError: If a setting is out of range.

    Examples:
        >>> SearchSettings(beam=5, max_length_ratio=1.5, max_length_extra=10).limit(source_length=20, longest=512)
        40
    """

    beam: int = 4
    length_penalty: float = 1.0
    max_length_ratio: float = 2.0
    max_length_extra: int = 30
    n_best: int = 1
    retrieval_margin: float | None = None

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise UsageError(
                f"Invalid search settings: beam = {self.beam}, n-best = {self.n_best}. Give a beam of at least 1, and "
                "n-best between 1 and the beam."
            )
        if not abs(self.length_penalty) <= _MAX_LENGTH_PENALTY:
            raise UsageError(
                f"Invalid length penalty {self.length_penalty}: give a number from -{_MAX_LENGTH_PENALTY} to "
                f"{_MAX_LENGTH_PENALTY}, such as 1."
            )
        if not 0 <= self.max_length_ratio < math.inf:
            raise UsageError(f"Invalid max_length_ratio {self.max_length_ratio}: give 0 or more, such as 2.")
        if self.retrieval_margin is not None and not self.retrieval_margin >= 0:
            raise UsageError(f"Invalid retrieval_margin {self.retrieval_margin}: give 0 or more, or inf for no limit.")

    def limit(self, source_length: int, longest: int) -> int:
        """Return the most tokens of a translation, its end included.

        Args:
            source_length: The number of source tokens.
            longest: The most tokens that the model can write.
        """
        return max(1, min(int(self.max_length_ratio * source_length) + self.max_length_extra, longest))


@torch.inference_mode()
def beam_search(
    model: BaseModel,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    scorer: Scorer,
    prefixes: Sequence[Sequence[int]] | None = None,
    best: BestTokens = best_candidates,
    check: Check = never_stop,
) -> list[list[Hypothesis]]:
    """Find the n best translations of each source, best first.

    Args:
        model: The base model.
        sources: Token ids of the sources, all in one batch.
        settings: The settings of the search.
        scorer: Retrieves and weights neighbours; `BaseScorer()` for the base model alone.
        prefixes: Token ids that each translation is forced to begin with.
        best: Finds the best tokens of the mixture; another function than ours is for benchmarks.
        check: Called before the sources are encoded and before every step; an exception that it raises ends the search.

    Returns:
        At most `settings.n_best` hypotheses for each source.

    Raises:
        UsageError: If a prefix is too long for the model.
    """
    if not sources:
        return []
    limits = length_limits(model, sources, settings)
    if prefixes is not None:
        longest = model.tokens.max_target_length
        if any(len(prefix) >= longest for prefix in prefixes):
            raise UsageError(f"A prefix is too long for the model: give at most {longest - 1} tokens.")
        limits = [min(limit + len(prefix), longest) for limit, prefix in zip(limits, prefixes, strict=True)]
    rules = make_rules(model, settings)
    beams = begin_beams(rules, limits, model.device)
    check()
    decoding = model.start(sources, settings.beam)
    given = Sources(decoding.source_means)
    select = CandidateSelector(model, scorer, rules, given, _pad_prefixes(prefixes, model.device), best)
    tokens = torch.tensor(model.tokens.start, device=model.device).expand(len(sources) * settings.beam, -1)
    while True:
        check()
        rows = beams.advance(select(decoding.step(tokens), beams))
        if rows is None:
            return beams.results
        decoding.reorder(rows)
        tokens = beams.last_tokens


class BeamSearcher:
    """Searches with one model, as a CUDA graph where model, scorer and request allow it, else by `beam_search`.

    Captured graphs are kept until the scorer changes.

    Args:
        model: The base model.

    Examples:
        >>> from ibidem.decode import BaseScorer
        >>> from ibidem.model import load_model
        >>> model = load_model(device="cpu")
        >>> sources = model.tokens.encode_sources(["Guten Morgen."])
        >>> found = BeamSearcher(model)(sources, SearchSettings(beam=4), BaseScorer())
        >>> len(found)
        1
    """

    def __init__(self, model: BaseModel) -> None:
        self._model = model
        self._captured: tuple[Scorer, CudaGraphSearch] | None = None

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scorer: Scorer,
        prefixes: Sequence[Sequence[int]] | None = None,
        check: Check = never_stop,
    ) -> list[list[Hypothesis]]:
        """Find the n best translations of each source; see `beam_search`."""
        captured = self._graph_search(scorer) if prefixes is None and sources else None
        if captured is None:
            return beam_search(self._model, sources, settings, scorer, prefixes, check=check)
        model = self._model
        return captured.search(sources, make_rules(model, settings), length_limits(model, sources, settings), check)

    def _graph_search(self, scorer: Scorer) -> CudaGraphSearch | None:
        """Return the search by CUDA graphs, or None where it is not possible."""
        network = self._model.fast_marian
        if self._model.device.type != "cuda" or network is None or not scorer.supports_cuda_graph:
            return None
        if self._captured is None or self._captured[0] is not scorer:
            self._captured = (scorer, CudaGraphSearch(self._model, network, scorer))
        return self._captured[1]


def length_limits(model: BaseModel, sources: Sequence[Sequence[int]], settings: SearchSettings) -> list[int]:
    """Return the most tokens of each source's translation, its end included.

    Args:
        model: The base model, whose own limit holds as well.
        sources: The token ids of each source.
        settings: The settings of the search.
    """
    return [settings.limit(len(ids), model.tokens.max_target_length) for ids in sources]


def make_rules(model: BaseModel, settings: SearchSettings) -> Rules:
    """Complete the settings of a search by what the model determines.

    Args:
        model: The base model.
        settings: The settings; a retrieval margin of None becomes the default of the model's device.
    """
    margin = settings.retrieval_margin
    return Rules(
        beam=settings.beam,
        n_best=settings.n_best,
        length_penalty=settings.length_penalty,
        eos=model.tokens.eos,
        force_end=model.forces_eos,
        # Tokens forced after the decoder's start token count as part of the translation, as in `generate()`.
        given=len(model.tokens.start) - 1,
        retrieval_margin=default_margin(model.device) if margin is None else margin,
    )


class CandidateSelector:
    """Selects the candidates for the next token of every hypothesis.

    Args:
        model: The base model.
        scorer: Retrieves and weights neighbours.
        rules: The settings of the search.
        sources: The sources of the batch.
        prefixes: Forced tokens [sentences, longest], -1 after the end of each prefix; None without prefixes.
        best: Finds the best tokens of the mixture.
    """

    def __init__(
        self,
        model: BaseModel,
        scorer: Scorer,
        rules: Rules,
        sources: Sources,
        prefixes: Tensor | None,
        best: BestTokens,
    ) -> None:
        self._scorer = scorer
        self._sources = sources
        self._best = best
        self._rules = rules
        self._prefixes = prefixes
        self._policy = make_policy(rules.retrieval_margin)
        self._left_out = tuple(model.banned)
        self._banned = torch.tensor(model.banned, device=model.device) if model.banned else None

    def __call__(self, step: Step, beams: Beams | NativeBeamState) -> Candidates:
        """Select the 2 * beam best candidates of every hypothesis, [rows, 2 * beam]."""
        forced = None
        if self._prefixes is not None and beams.length <= self._prefixes.shape[1]:
            forced = self._prefixes[beams.sentences, beams.length - 1].repeat_interleave(self._rules.beam)
        candidates = self._select_native(step, beams)
        if candidates is not None and forced is None:
            return self._force_end(candidates, beams)
        beam, logits = self._rules.beam, step.logits
        queries = beams.mask_lagging(step.states) if self._scorer.memories else step.states
        rows = beams.sentences.repeat_interleave(beam)
        retrieved = self._scorer.retrieve(queries, beam, StepContext(logits, self._sources, rows, self._banned))
        if candidates is None:
            candidates = self._best(logits, retrieved.weights, retrieved.values, 2 * beam, self._banned)
        candidates = self._force_end(candidates, beams)
        if forced is not None:
            # Sentences without a prefix keep the candidates that they would have in a batch of their own.
            tokens = forced.clamp_min(0)
            log_probs = score_tokens(logits, retrieved.weights, retrieved.values, tokens)
            candidates = force_tokens(candidates, forced >= 0, tokens, log_probs)
        if isinstance(beams, NativeBeamState) and retrieved.values.shape[1]:
            _record_evidence(beams, logits, retrieved, candidates)
        return candidates

    def _select_native(self, step: Step, beams: Beams | NativeBeamState) -> Candidates | None:
        """Retrieve, weight and mix in one native call where all parts are native; else return None."""
        if not isinstance(self._scorer, NativeScorer) or not isinstance(beams, NativeBeamState):
            return None
        native_step = self._scorer.step
        if native_step is None or self._best is not best_candidates:
            return None
        count = min(2 * self._rules.beam, step.logits.shape[1] - len(self._left_out))
        vectors = self._scorer.source_vectors(self._sources)
        best = native_step.best_tokens(
            step.states, step.logits, beams.native, self._policy, count, self._left_out, vectors
        )
        return Candidates(*best)

    def _force_end(self, candidates: Candidates, beams: Beams | NativeBeamState) -> Candidates:
        """Force the end of sentences at their limit, where the model does so."""
        last = beams.at_limit() if self._rules.force_end else None
        if last is None:
            return candidates
        rows = last.repeat_interleave(self._rules.beam)
        end = torch.full_like(rows, self._rules.eos, dtype=torch.long)
        return force_tokens(candidates, rows, end, torch.zeros_like(candidates.log_probs[:, 0]))


def _record_evidence(beams: NativeBeamState, logits: Tensor, retrieved: Retrieved, candidates: Candidates) -> None:
    """Record what is known of the candidates, as `RetrievalStep.best_tokens` does for one memory."""
    normalisers = logits.logsumexp(dim=1) if candidates.normalisers is None else candidates.normalisers
    nearest = retrieved.distances.argmin(dim=1, keepdim=True)
    entries = retrieved.entries.gather(1, nearest).squeeze(1)
    beams.native.record(
        retrieved.weights.base,
        retrieved.distances.gather(1, nearest).squeeze(1),
        pack_entries(entries, retrieved.sources[nearest.squeeze(1)]),
        candidates.tokens,
        logits.gather(1, candidates.tokens) - normalisers[:, None],
    )


def _pad_prefixes(prefixes: Sequence[Sequence[int]] | None, device: torch.device) -> Tensor | None:
    """Pad prefixes to [n, longest] with -1."""
    if prefixes is None or not any(prefixes):
        return None
    longest = max(len(prefix) for prefix in prefixes)
    return torch.tensor([[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes], device=device)
