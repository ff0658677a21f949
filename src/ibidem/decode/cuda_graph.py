"""Beam search as a step of fixed shape, captured once as a CUDA graph and replayed; it finds what `beam_search` finds.

Decoder, compactor, index, combiner, mixture and beams are one graph, so that the device never waits for Python. The
sentences of a batch stay together until all are finished; the results of a finished sentence do not change any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ibidem.combine import best_candidates
from ibidem.decode.beams import (
    NEVER,
    Chain,
    Rules,
    cannot_improve,
    collect,
    extend,
    finish,
    force_tokens,
    select_running,
)
from ibidem.decode.retrieval_policy import find_lagging
from ibidem.model import CudaStaticDecoding, StaticShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scorer import Retrieved, Scorer
    from ibidem.model import BaseModel, FastMarian

# Steps between two checks of whether all sentences are finished; each check waits for the device.
_CHECK_EVERY = 4
# Sources and steps are padded to these numbers times a power of two, so that few graphs serve all batches.
_SOURCE_UNIT = 32
_STEP_UNIT = 64
_MOST_GRAPHS = 12


class CudaGraphSearch:
    """Searches with graphs of a few shapes, each captured when it is first needed.

    Args:
        model: The base model.
        network: Its decoder with static shapes.
        scorer: The scorer; it must support CUDA graphs.
    """

    def __init__(self, model: BaseModel, network: FastMarian, scorer: Scorer) -> None:
        self._model = model
        self._network = network
        self._scorer = scorer
        self._buffers: dict[tuple[StaticShape, Rules], GraphBuffers] = {}

    def search(
        self, sources: Sequence[Sequence[int]], rules: Rules, limits: Sequence[int], check: Check
    ) -> list[list[Hypothesis]]:
        """Find the n best translations of each source, best first.

        Args:
            sources: Token ids of the sources.
            rules: The settings of the search.
            limits: The most tokens of each translation, its end included.
            check: Called every few steps; see `beam_search`.
        """
        shape = StaticShape(
            1 << (len(sources) - 1).bit_length(),
            rules.beam,
            round_up(max(map(len, sources)), _SOURCE_UNIT),
            round_up(max(limits), _STEP_UNIT),
        )
        if (shape, rules) not in self._buffers:
            while len(self._buffers) >= _MOST_GRAPHS:
                self._buffers.pop(next(iter(self._buffers)))
            self._buffers[shape, rules] = GraphBuffers(self._model, self._network, self._scorer, rules, shape)
        return self._buffers[shape, rules].search(sources, limits, check)


class GraphBuffers:
    """The buffers of one shape and, on a GPU, its graph; without a GPU the step runs as it is.

    Args:
        model: The base model.
        network: Its network with static buffers.
        scorer: A scorer that supports CUDA graphs.
        rules: The rules of the search.
        shape: The shape of the buffers: sentences, beam, source tokens and steps.
    """

    def __init__(self, model: BaseModel, network: FastMarian, scorer: Scorer, rules: Rules, shape: StaticShape) -> None:
        device = model.device
        self._model = model
        self._scorer = scorer
        self._rules = rules
        self._shape = shape
        self._banned = torch.tensor(model.banned, device=device) if model.banned else None
        self._decoding = CudaStaticDecoding(network, shape)
        batch, beam, _, steps = shape
        self._tokens = torch.zeros(batch * beam, dtype=torch.long, device=device)
        self._limits = torch.ones(batch, dtype=torch.long, device=device)
        self._scores = torch.full((batch, beam), NEVER, device=device)
        self._ended_scores = torch.full((batch, beam), NEVER, device=device)
        self._ends = torch.zeros(batch, beam, 3, dtype=torch.long, device=device)
        self._done = torch.zeros(batch, dtype=torch.bool, device=device)
        self._chain = torch.zeros(2, steps, batch, beam, dtype=torch.long, device=device)
        self._skipped = torch.zeros(steps, batch, beam, dtype=torch.bool, device=device)
        concurrent = device.type == "cuda" and len(scorer.memories) > 0
        self._side = torch.cuda.Stream() if concurrent else None  # type: ignore[no-untyped-call]
        self._graph = self._capture() if device.type == "cuda" else None

    @torch.inference_mode()
    def search(self, sources: Sequence[Sequence[int]], limits: Sequence[int], check: Check) -> list[list[Hypothesis]]:
        """Find the n best translations of each source, best first; see `CudaGraphSearch.search`.

        Args:
            sources: The token ids of each source, at most as many and as long as the shape allows.
            limits: The most tokens of each translation, its end included.
            check: Called before the search and between steps; see `beam_search`.
        """
        check()
        self._begin(sources, limits)
        taken = 0
        while True:
            check()
            for _ in range(min(_CHECK_EVERY, self._shape.steps - taken)):
                self._advance() if self._graph is None else self._graph.replay()
                taken += 1
            if taken >= max(limits) or bool(self._done.all()):
                break
        count = len(sources)
        parents, tokens = self._chain[:, :taken, :count]
        chain = Chain(parents, tokens, self._skipped[:taken, :count])
        return collect(chain, self._ended_scores[:count], self._ends[:count], torch.tensor(limits), self._rules)

    def _begin(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Reset the buffers and load sentences; unused places count as finished."""
        count = len(sources)
        self._decoding.load(*self._model.pad(sources))
        self._tokens.fill_(self._model.tokens.start[0])
        self._limits.fill_(1)
        self._limits[:count] = torch.tensor(limits, device=self._limits.device)
        self._scores.fill_(NEVER)
        self._scores[:, 0] = 0.0
        self._ended_scores.fill_(NEVER)
        self._ends.zero_()
        self._done.fill_(True)
        self._done[:count] = False

    def _advance(self) -> None:
        """Take one step for all sentences, without waiting for the device."""
        rules, number = self._rules, self._decoding.number
        states = self._decoding.step(self._tokens)
        retrieved, logits = self._retrieve(states, self._mask_lagging(states.float(), number))
        candidates = best_candidates(logits, retrieved.weights, retrieved.values, 2 * rules.beam, self._banned)
        last = number + 1 >= self._limits
        if rules.force_end:
            rows = last[:, None].expand(-1, rules.beam).reshape(-1)
            end = torch.full_like(self._tokens, rules.eos)
            candidates = force_tokens(candidates, rows, end, torch.zeros_like(candidates.log_probs[:, 0]))
        extensions = extend(candidates, self._scores, rules, last)
        counted = (number + (1 + rules.given)).float() ** rules.length_penalty
        ended = finish(extensions, self._ended_scores, self._ends, rules, number, extensions.scores / counted)
        self._keep(*ended)
        running = select_running(extensions, rules)
        self._scores.copy_(running.scores)
        self._tokens.copy_(running.tokens.view(-1))
        self._chain.index_copy_(1, number, torch.stack([running.parents, running.tokens])[:, None])
        self._done |= last | cannot_improve(self._ended_scores, running.scores / counted, rules)
        self._decoding.reorder(running.parents)

    def _mask_lagging(self, states: Tensor, number: Tensor) -> Tensor:
        """Set the states of hypotheses beyond the retrieval margin to NaN; number: of the step, [1]."""
        if self._rules.retrieval_margin == math.inf:
            return states
        lagging = find_lagging(self._scores, self._rules.retrieval_margin)
        self._skipped.index_copy_(0, number, lagging[None])
        return states.masked_fill(lagging.view(-1, 1), torch.nan)

    def _retrieve(self, states: Tensor, queries: Tensor) -> tuple[Retrieved, Tensor]:
        """Retrieve neighbours and compute logits; on a GPU at the same time, since they do not depend on each other."""
        if self._side is None:
            return self._scorer.retrieve(queries), self._decoding.project(states)
        now = torch.cuda.current_stream()
        self._side.wait_stream(now)
        with torch.cuda.stream(self._side):
            retrieved = self._scorer.retrieve(queries)
        logits = self._decoding.project(states)
        now.wait_stream(self._side)
        return retrieved, logits

    def _keep(self, scores: Tensor, ends: Tensor) -> None:
        """Store newly finished hypotheses, except those of sentences that were finished before."""
        done = self._done[:, None]
        self._ended_scores.copy_(torch.where(done, self._ended_scores, scores))
        self._ends.copy_(torch.where(done[:, :, None], self._ends, ends))

    @torch.inference_mode()
    def _capture(self) -> torch.cuda.CUDAGraph:
        """Run a step a few times, so that libraries allocate and compile, and then capture one."""
        self._begin([[self._model.tokens.eos]], [1])
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device
            self._advance()
        return graph


def round_up(count: int, unit: int) -> int:
    """Return the least unit * 2^n that is not below a count.

    Args:
        count: The number to reach.
        unit: The least result, above 0.
    """
    size = unit
    while size < count:
        size *= 2
    return size
