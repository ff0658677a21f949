"""Beam search as one step of fixed shape, recorded once as a CUDA graph and replayed: it finds what `search` finds.

Decoder, compactor, search, combiner, mixture and beams are one graph, so that the device never waits for Python. The
sentences of a batch stay together until all are done; what a sentence had when it was done stays as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ibidem.combine import best_candidates
from ibidem.decode.beams import NEVER, Chain, Rules, behind, collect, extend, finish, force, go_on, hopeless
from ibidem.decode.search import never_stop
from ibidem.model import CudaStaticDecoding, StaticShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scoring import Retrieved, Scorer
    from ibidem.decode.search import Check
    from ibidem.model import BaseModel, FastMarian

# Steps between two looks at whether all sentences are done.
_LOOK_EVERY = 4
_SOURCE_ROOM = 32
_STEP_ROOM = 64
_MOST_GRAPHS = 12


class CudaGraphSearch:
    """Beam search in rooms of a few sizes, each recorded when it is first needed."""

    def __init__(self, model: BaseModel, network: FastMarian, scorer: Scorer) -> None:
        self._model = model
        self._network = network
        self._scorer = scorer
        self._rooms: dict[tuple[StaticShape, Rules], Room] = {}

    def search(
        self, sources: Sequence[Sequence[int]], rules: Rules, limits: Sequence[int], check: Check = never_stop
    ) -> list[list[Hypothesis]]:
        """The n best translations of each source, best first; limits: the most tokens of each.

        check: is called every few steps; see `beam_search`.
        """
        shape = StaticShape(
            1 << (len(sources) - 1).bit_length(),
            rules.beam,
            round_up(max(map(len, sources)), _SOURCE_ROOM),
            round_up(max(limits), _STEP_ROOM),
        )
        if (shape, rules) not in self._rooms:
            while len(self._rooms) >= _MOST_GRAPHS:
                self._rooms.pop(next(iter(self._rooms)))
            self._rooms[shape, rules] = Room(self._model, self._network, self._scorer, rules, shape)
        return self._rooms[shape, rules].search(sources, limits, check)


class Room:
    """One shape, with its buffers and, on a GPU, its graph."""

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
        self._silent = torch.zeros(steps, batch, beam, dtype=torch.bool, device=device)
        beside = device.type == "cuda" and len(scorer.memories) > 0
        self._side = torch.cuda.Stream() if beside else None  # type: ignore[no-untyped-call]
        self._graph = self._record() if device.type == "cuda" else None

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], check: Check = never_stop
    ) -> list[list[Hypothesis]]:
        check()
        self._begin(sources, limits)
        taken = 0
        while True:
            check()
            for _ in range(min(_LOOK_EVERY, self._shape.steps - taken)):
                self._advance() if self._graph is None else self._graph.replay()
                taken += 1
            if taken >= max(limits) or bool(self._done.all()):
                break
        count = len(sources)
        parents, tokens = self._chain[:, :taken, :count]
        chain = Chain(parents, tokens, self._silent[:taken, :count])
        return collect(chain, self._ended_scores[:count], self._ends[:count], torch.tensor(limits), self._rules)

    def _begin(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Empty the room and put sentences into it; the rest of it is done from the start."""
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
        """One step for all sentences, on the device alone."""
        rules, number = self._rules, self._decoding.number
        states = self._decoding.step(self._tokens)
        votes, logits = self._consult(states, self._silence(states.float(), number))
        candidates = best_candidates(logits, votes.weights, votes.values, 2 * rules.beam, self._banned)
        last = number + 1 >= self._limits
        if rules.force_end:
            rows = last[:, None].expand(-1, rules.beam).reshape(-1)
            end = torch.full_like(self._tokens, rules.eos)
            candidates = force(candidates, rows, end, torch.zeros_like(candidates.log_probs[:, 0]))
        grown = extend(candidates, self._scores, rules, last)
        counted = (number + (1 + rules.given)).float() ** rules.length_penalty
        ended = finish(grown, self._ended_scores, self._ends, rules, number, grown.scores / counted)
        self._keep(*ended)
        going = go_on(grown, rules)
        self._scores.copy_(going.scores)
        self._tokens.copy_(going.tokens.view(-1))
        self._chain.index_copy_(1, number, torch.stack([going.parents, going.tokens])[:, None])
        self._done |= last | hopeless(self._ended_scores, going.scores / counted, rules)
        self._decoding.reorder(going.parents)

    def _silence(self, states: Tensor, number: Tensor) -> Tensor:
        """See `Beams.silence`; number: of the step [1]."""
        if self._rules.retrieval_margin == math.inf:
            return states
        far = behind(self._scores, self._rules)
        self._silent.index_copy_(0, number, far[None])
        return states.masked_fill(far.view(-1, 1), torch.nan)

    def _consult(self, states: Tensor, asking: Tensor) -> tuple[Retrieved, Tensor]:
        """The votes of the memories and the model's logits: on a GPU side by side, since neither needs the other."""
        if self._side is None:
            return self._scorer.retrieve(asking), self._decoding.project(states)
        now = torch.cuda.current_stream()
        self._side.wait_stream(now)
        with torch.cuda.stream(self._side):
            votes = self._scorer.retrieve(asking)
        logits = self._decoding.project(states)
        now.wait_stream(self._side)
        return votes, logits

    def _keep(self, scores: Tensor, ends: Tensor) -> None:
        """Take newly finished hypotheses over, but for sentences that were done before."""
        done = self._done[:, None]
        self._ended_scores.copy_(torch.where(done, self._ended_scores, scores))
        self._ends.copy_(torch.where(done[:, :, None], self._ends, ends))

    @torch.inference_mode()
    def _record(self) -> torch.cuda.CUDAGraph:
        """Run a step a few times, so that libraries settle, and then record one."""
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
    """The least unit x 2^n that is not below a count."""
    room = unit
    while room < count:
        room *= 2
    return room
