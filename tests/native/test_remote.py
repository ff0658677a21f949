"""The native retrieval step with a search in other processes, against the same step with an index."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ibidem.combine import to_native
from ibidem.compact import place_compactor
from ibidem.native import (
    NativeBeams,
    RemoteSearch,
    RetrievalPolicy,
    RetrievalStep,
    SearchLimits,
    SearchMode,
    SentenceTable,
)
from ibidem.retrieve import ArrayKeys, NativeIndex, build_index

from .samples import COMPACTORS, ENTRIES, INPUTS, VOCABULARY, make_combiners, make_compactor, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

pytestmark = pytest.mark.usefixtures("native_build")

DIMENSION = 64
# So that a reduced search often finds other neighbours than a full one.
FULL, REDUCED = SearchLimits(6, 40, 1.2, 1.2, 6), SearchLimits(1, 16, 1.0, 0.8, 1)
POLICY = RetrievalPolicy(margin=6.0, reduced_gap=2.0, reduced_above=0.6)
COMBINERS = ("fixed", "adaptive", "distance decay", "contextual")


class Shard:
    """An index behind the function of a remote search; the function keeps what it was given."""

    def __init__(self, index: NativeIndex) -> None:
        self.index = index
        self.mask: NDArray[np.uint16] | None = None
        self.modes: list[NDArray[np.uint8]] = []
        self.queries: list[NDArray[np.float32]] = []

    def search(
        self,
        queries: NDArray[np.float32],
        modes: NDArray[np.uint8],
        group_size: int,
        k: int,
        distances: NDArray[np.float32],
        entries: NDArray[np.int64],
    ) -> None:
        self.queries.append(queries.copy())
        self.modes.append(modes.copy())
        # Torch takes no arrays that cannot be written.
        given = torch.from_numpy(queries.copy()), torch.from_numpy(modes.copy())
        found = self.index.ivf.search_rows(*given, group_size, k, FULL, REDUCED, self.mask, threads=1)
        distances[:], entries[:] = (tensor.numpy() for tensor in found)


class Memory:
    """The parts of a random memory, of which steps are made."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(1)
        compactor = make_compactor(kind, DIMENSION)
        self.inputs = DIMENSION if compactor is None else INPUTS
        self.states = torch.randn(ENTRIES, self.inputs)
        keys = (self.states if compactor is None else compactor(self.states)).half()
        self.typical = float(torch.cdist(keys[:50].float(), keys[50:].float()).square().mean())
        index = build_index(ArrayKeys(keys.numpy()), "native", seed=0)
        assert isinstance(index, NativeIndex)
        self.index, self.table = index, make_table()
        self.kernel: Any = None
        if compactor is not None:
            placed: Any = place_compactor(compactor, "cpu", int16=kind.endswith("int16"))
            self.kernel = placed.kernel

    def step(self, combiner: str, search: RemoteSearch | None, threads: int = 1, mask: Any = None) -> RetrievalStep:
        """A step with this search, or with the index itself."""
        native: Any = to_native(make_combiners(self.typical / 4)[combiner])
        log_probs, sentences, vectors = self.table.log_probs, self.table.sentences, self.table.source_vectors
        assert log_probs is not None
        assert sentences is not None
        assert vectors is not None
        limits = (FULL, REDUCED) if search is None else (None, None)
        return RetrievalStep(
            self.kernel,
            search or self.index.ivf,
            *limits,
            self.table.values,
            native.kernel,
            sentences=SentenceTable(log_probs, sentences, vectors) if combiner == "contextual" else None,
            alive_mask=mask if search is None else None,
            threads=threads,
        )

    def draw_states(self, rows: int) -> torch.Tensor:
        """States near those of entries, in pairs that are nearly equal, so that searches are shared."""
        drawn = self.states[torch.randint(0, ENTRIES, (rows,))] + 0.3 * torch.randn(rows, self.inputs)
        drawn[1::2] = drawn[: rows - 1 : 2] + 1e-3 * torch.randn(rows // 2, self.inputs)
        return drawn


@lru_cache(maxsize=16)
def make_memory(kind: str, build: str) -> Memory:
    """One memory for all tests of a build, to which the kernel of its compactor belongs."""
    assert build
    return Memory(kind)


def remote(function: Callable[..., object]) -> RemoteSearch:
    return RemoteSearch(DIMENSION, function)


def translate(step: RetrievalStep, memory: Memory, sentences: int, combiner: str) -> tuple[list[Any], Any]:
    """Best tokens of every step, and all finished hypotheses with their evidence, of a random decoding."""
    torch.manual_seed(5)
    vectors = None
    if combiner == "contextual":
        vectors = torch.nn.functional.normalize(torch.randn(sentences, 12), dim=1)
    beams = NativeBeams([3] * sentences, beam=5, eos=0, force_end=True)
    best = []
    while beams.open:
        states, logits = memory.draw_states(beams.rows), 3 * torch.randn(beams.rows, VOCABULARY)
        found = step.best_tokens(states, logits, beams, POLICY, 10, (), vectors)
        beams.advance(found.scores, found.tokens, 1.0)
        best.append(found)
    return best, beams.results(5)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", COMPACTORS)
def test_best_tokens_and_evidence_equal_those_of_an_index(native_build: str, kind: str, combiner: str) -> None:
    memory = make_memory(kind, native_build)
    shard = Shard(memory.index)
    for sentences in (1, 64):
        expected, expected_results = translate(memory.step(combiner, None), memory, sentences, combiner)
        for threads in (1, 2):
            elsewhere = memory.step(combiner, remote(shard.search), threads)
            found, results = translate(elsewhere, memory, sentences, combiner)
            for one, other in zip(found, expected, strict=True):
                assert torch.equal(one.scores, other.scores)
                assert torch.equal(one.tokens, other.tokens)
            assert results == expected_results
    # All ways of searching took part.
    assert {SearchMode.SKIP, SearchMode.REDUCED, SearchMode.FULL} <= set(np.concatenate(shard.modes).tolist())


@pytest.mark.parametrize("kind", ["none", "network"])
@given(
    rows=st.integers(0, 40),
    group_size=st.integers(1, 6),
    lost=st.sets(st.integers(0, 39)),
    hidden=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_neighbours_equal_those_of_an_index(
    native_build: str, kind: str, rows: int, group_size: int, lost: set[int], hidden: bool, seed: int
) -> None:
    memory = make_memory(kind, native_build)
    torch.manual_seed(seed)
    states = memory.draw_states(rows)
    for row in lost:
        # A state without any number, one with a component that is none, and one that is too long for a distance.
        states[row : row + 1, row % 2 :] = (math.nan, math.inf, 1e30)[row % 3]
    shard = Shard(memory.index)
    if hidden:
        shard.mask = memory.index.without(np.arange(0, ENTRIES, 3)).live
    expected = memory.step("fixed", None, 1, shard.mask)(states, group_size)
    found = memory.step("fixed", remote(shard.search), 2)(states, group_size)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    for row in lost & set(range(rows)):
        # A network gives a usable query for any numbers but NaN.
        if kind == "network" and row % 3:
            continue
        assert (found.entries[row] == -1).all()
        assert shard.modes[0][row] == SearchMode.SKIP


def test_a_reduced_search_finds_what_a_step_finds_with_reduced_limits(native_build: str) -> None:
    memory = make_memory("none", native_build)
    states = memory.draw_states(60)
    ivf = memory.index.ivf
    for mode, limits in ((SearchMode.FULL, FULL), (SearchMode.REDUCED, REDUCED)):
        modes = torch.full((60,), mode, dtype=torch.uint8)
        distances, entries = ivf.search_rows(states, modes, 3, 4, FULL, REDUCED)
        expected = ivf.search(states, 4, limits, group_size=3)
        assert torch.equal(distances, expected[0])
        assert torch.equal(entries, expected[1])
    assert not torch.equal(ivf.search(states, 4, FULL)[1], ivf.search(states, 4, REDUCED)[1])


def test_rows_of_wrong_shapes_are_refused(native_build: str) -> None:
    ivf = make_memory("none", native_build).index.ivf
    queries, modes = torch.zeros(3, DIMENSION), torch.full((3,), SearchMode.FULL, dtype=torch.uint8)
    wrong: list[tuple[torch.Tensor, torch.Tensor, int, int]] = [
        (queries[:2], modes, 1, 4),
        (queries[:, 1:], modes, 1, 4),
        (queries, modes.long(), 1, 4),
        (queries, modes[:, None], 1, 4),
        (queries, modes, 0, 4),
        (queries, modes, 1, 0),
    ]
    for given_queries, given_modes, group_size, k in wrong:
        with pytest.raises(ValueError, match="queries must be"):
            ivf.search_rows(given_queries, given_modes, group_size, k, FULL, REDUCED)


def test_the_function_is_called_once_on_the_calling_thread_with_arrays_to_read(native_build: str) -> None:
    memory = make_memory("network", native_build)
    calls: list[tuple[Any, ...]] = []

    def search(*arguments: Any) -> None:
        calls.append((threading.get_ident(), *arguments))

    states = memory.draw_states(7)
    states[2] = math.nan
    memory.step("fixed", remote(search), 2)(states, 3)
    [(thread, queries, modes, group_size, k, distances, entries)] = calls
    assert thread == threading.get_ident()
    assert (group_size, k) == (3, 4)
    assert (queries.shape, modes.shape) == ((7, DIMENSION), (7,))
    assert (distances.shape, entries.shape) == ((7, 4), (7, 4))
    # Nothing of this process is sent elsewhere with a row that is skipped.
    assert not queries[2].any()
    assert not queries.flags.writeable
    assert not modes.flags.writeable
    assert queries[:2].any(axis=1).all()


@pytest.mark.parametrize("error", [ValueError("no shard answers"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_the_function_is_raised_as_it_is(native_build: str, error: BaseException) -> None:
    memory = make_memory("none", native_build)
    fails = True
    shard = Shard(memory.index)

    def search(*arguments: Any) -> None:
        if fails:
            raise error
        shard.search(*arguments)

    step, states = memory.step("fixed", remote(search), 2), memory.draw_states(10)
    beams = NativeBeams([5] * 2, beam=5, eos=0, force_end=True)
    with pytest.raises(type(error)) as raised:
        step(states)
    assert raised.value is error
    with pytest.raises(type(error)) as raised:
        step.best_tokens(states, torch.randn(10, VOCABULARY), beams, POLICY, 10, ())
    assert raised.value is error
    fails = False
    assert torch.equal(step(states).entries, memory.step("fixed", None)(states).entries)


def test_rows_that_are_not_written_have_no_neighbours_of_an_earlier_step(native_build: str) -> None:
    memory = make_memory("linear", native_build)
    shard = Shard(memory.index)
    answers = True

    def search(*arguments: Any) -> None:
        if answers:
            shard.search(*arguments)

    step = memory.step("contextual", remote(search))
    vectors = torch.nn.functional.normalize(torch.randn(2, 12), dim=1)
    states, logits = memory.draw_states(10), torch.randn(10, VOCABULARY)
    alone = logits.log_softmax(1).topk(10, dim=1).values

    def best() -> torch.Tensor:
        beams = NativeBeams([5] * 2, beam=5, eos=0, force_end=True)
        return step.best_tokens(states, logits, beams, RetrievalPolicy(math.inf, 0.0, 1.0), 10, (), vectors).scores

    assert (step(states).entries >= 0).any()
    assert not torch.allclose(best(), alone, atol=1e-3)
    answers = False
    found = step(states)
    assert (found.entries == -1).all()
    assert torch.isinf(found.distances).all()
    torch.testing.assert_close(best(), alone, rtol=1e-5, atol=1e-5)


def test_later_writes_and_rows_that_are_skipped_have_no_effect(native_build: str) -> None:
    memory = make_memory("none", native_build)
    kept: list[Any] = []

    def search(*arguments: Any) -> None:
        distances, entries = arguments[-2:]
        distances[:], entries[:] = 1.0, 7
        kept.extend((distances, entries))
        with pytest.raises(ValueError, match="resize"):
            entries.resize(0, refcheck=False)

    states = memory.draw_states(6)
    states[4] = math.nan
    found = memory.step("fixed", remote(search))(states)
    kept[0][:], kept[1][:] = -1.0, 1 << 40
    assert (found.entries[4] == -1).all()
    assert torch.isinf(found.distances[4]).all()
    assert (found.entries[[0, 1, 2, 3, 5]] == 7).all()
    assert (found.distances[[0, 1, 2, 3, 5]] == 1).all()


def test_neighbours_without_a_distance_are_left_out(native_build: str) -> None:
    memory = make_memory("none", native_build)

    def search(*arguments: Any) -> None:
        distances, entries = arguments[-2:]
        entries[:] = [[3, 4, 5, 6], [3, -1, 5, 6], [3, 4, 5, 6]]
        distances[:] = [[math.nan, 1, -1, 2], [0, 1, 2, math.inf], [-math.inf, math.nan, math.inf, -0.5]]

    found = memory.step("fixed", remote(search))(memory.draw_states(3))
    assert found.entries.tolist() == [[4, 6, -1, -1], [3, 5, -1, -1], [-1] * 4]
    assert found.distances.tolist() == [[1, 2, math.inf, math.inf], [0, 2, math.inf, math.inf], [math.inf] * 4]


@pytest.mark.parametrize("combiner", COMBINERS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_any_answer_gives_a_distribution_or_an_error(native_build: str, combiner: str, data: st.DataObject) -> None:
    memory = make_memory("none", native_build)
    width = {"fixed": 4, "distance decay": 5}.get(combiner, 8)
    entries = st.integers(-1, ENTRIES - 1)
    if data.draw(st.booleans(), "beyond the table"):
        entries |= st.integers(-(2**63), 2**63 - 1)
    answer = data.draw(arrays(np.int64, (5, width), elements=entries), "entries")
    measured = data.draw(arrays(np.float32, (5, width), elements=st.floats(width=32)), "distances")

    def search(*arguments: Any) -> None:
        arguments[-2][:], arguments[-1][:] = measured, answer

    step = memory.step(combiner, remote(search), data.draw(st.integers(1, 2), "threads"))
    beams = NativeBeams([5], beam=5, eos=0, force_end=True)
    vectors = torch.nn.functional.normalize(torch.randn(1, 12), dim=1) if combiner == "contextual" else None
    states, logits = memory.draw_states(5), torch.randn(5, VOCABULARY)
    if ((answer < -1) | (answer >= ENTRIES)).any():
        with pytest.raises(IndexError, match="none of the 700"):
            step(states)
        with pytest.raises(IndexError, match="none of the 700"):
            step.best_tokens(states, logits, beams, RetrievalPolicy(math.inf, 0.0, 1.0), 10, (), vectors)
        return
    found = step(states)
    there = found.entries >= 0
    assert torch.equal(there, torch.isfinite(found.distances))
    assert (found.distances >= 0).all()
    assert (there.long().diff(dim=1) <= 0).all()
    policy = RetrievalPolicy(math.inf, 0.0, 1.0)
    # With all tokens wanted the probabilities of a row sum to 1.
    best = step.best_tokens(states, logits, beams, policy, VOCABULARY, (), vectors)
    torch.testing.assert_close(best.scores.exp().sum(dim=1), torch.ones(5), rtol=1e-4, atol=1e-4)


def test_a_step_within_the_function_is_refused(native_build: str) -> None:
    memory = make_memory("none", native_build)
    states = memory.draw_states(3)
    local = memory.step("fixed", None)
    step = memory.step("fixed", remote(lambda *_: local(states)))
    with pytest.raises(RuntimeError, match="on its own thread"):
        step(states)
    assert local(states).entries.shape == (3, 4)


def test_parts_that_do_not_fit_are_refused(native_build: str) -> None:
    memory = make_memory("linear", native_build)
    combiner: Any = to_native(make_combiners(memory.typical)["fixed"])
    with pytest.raises(ValueError, match="limits"):
        RetrievalStep(memory.kernel, memory.index.ivf, None, None, memory.table.values, combiner.kernel)
    search = RemoteSearch(DIMENSION + 1, print)
    with pytest.raises(ValueError, match="64 components for a search of 65"):
        RetrievalStep(memory.kernel, search, None, None, memory.table.values, combiner.kernel)
    with pytest.raises(ValueError, match="at least one entry"):
        RetrievalStep(memory.kernel, remote(print), None, None, torch.empty(0, dtype=torch.int64), combiner.kernel)
