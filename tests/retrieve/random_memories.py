"""Search random memories in native code and check what comes back: `python tests/retrieve/random_memories.py --help`.

A memory has 1 to 300,000 keys of 4 to 1024 dimensions, of which many may be equal or nearly so; the queries are near,
far, huge or not finite. Results are checked against distances computed by numpy, and where every list is searched,
against exact search. With a sanitized build of the library (`make sanitize`) every memory access is checked too.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import torch

from ibidem.combine import AdaptiveCombiner, DistanceDecayCombiner, EntryTable, FixedCombiner, MetaK
from ibidem.compact import LinearCompactor, NetworkCompactor, place_compactor
from ibidem.decode import MemoryScorer
from ibidem.decode.scorer import NativeScorer, make_scorer
from ibidem.memory import KeyCoding
from ibidem.native import NativeBeams, RetrievalPolicy, best_of_mixture, loaded_instructions, native
from ibidem.retrieve import ArrayKeys, CompactedIndex, ExactIndex, NativeIndex, build_index
from ibidem.retrieve.index import LARGEST_SQUARE
from ibidem.retrieve.ivf import builder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

    from ibidem.combine import Combiner
    from ibidem.compact import Compactor
    from ibidem.native import SearchLimits
    from ibidem.retrieve import Index

DIMENSIONS = (4, 8, 12, 20, 36, 64, 64, 64, 100, 128, 256, 512, 512, 1024)
MOST_KEYS = 300_000
# Components of all keys of a memory: more would take minutes to build.
MOST_NUMBERS = 1 << 24
EVERYWHERE = "native;nprobe=1000000;prune_ratio=1000000;rerank=4000"
DEFAULT = "native"
SETTINGS = (DEFAULT, DEFAULT, "native;nprobe=1;rerank=1", "native;nprobe=3;prune_ratio=1.5;rerank=200", EVERYWHERE)


@dataclass
class Totals:
    """What was searched so far."""

    memories: int = 0
    keys: int = 0
    queries: int = 0
    steps: int = 0

    def __str__(self) -> str:
        return (
            f"{self.memories} memories of {self.keys} keys, {self.queries} queries, {self.steps} joined decoding steps"
        )


def draw_keys(generator: Generator, size: int, dimension: int) -> np.ndarray:
    """Draw keys [size, dimension], float16 or float32, of one of several distributions."""
    kind = generator.integers(8)
    normal = generator.standard_normal((size, dimension), np.float32)
    if kind == 0:  # all equal
        keys = np.broadcast_to(normal[:1], normal.shape)
    elif kind == 1:  # few distinct ones
        keys = normal[generator.integers(min(size, 7), size=size)]
    elif kind == 2:  # nearly equal distances from anywhere
        keys = 30.0 + 0.01 * normal
    elif kind == 3:  # equally long, so equally far from the centre
        keys = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    elif kind == 4:  # one key decides the range of the codes
        keys = normal.copy()
        keys[generator.integers(size)] *= 500
    elif kind == 5:  # whole numbers: many ties
        keys = np.rint(normal)
    else:  # clusters with duplicates
        centres = generator.standard_normal((max(1, size // 50), dimension), np.float32)
        keys = centres[generator.integers(len(centres), size=size)] + 0.3 * normal
        keys[generator.integers(size, size=size // 3)] = keys[0]
    scale = generator.choice([0.01, 1.0, 1.0, 30.0])
    return (scale * keys).astype(generator.choice([np.float16, np.float32]))


class ChunkedKeys(ArrayKeys):
    """Keys that lie in several arrays, as those of a memory of several segments."""

    def __init__(self, generator: Generator, array: np.ndarray, coding: KeyCoding | None) -> None:
        super().__init__(array, coding)
        count = int(generator.choice([0, 1, 5, 100]))
        self._chunks = [
            each.copy() for each in np.split(array, np.sort(generator.integers(len(array) + 1, size=count)))
        ]

    def chunks(self) -> list[np.ndarray]:
        return self._chunks

    def plain(self) -> np.ndarray:
        """Return all keys as the library decodes them, which float16 may not hold."""
        return self._array if self.coding is None else self.coding.offset + self.coding.step * self._array


def draw_source(generator: Generator, keys: np.ndarray) -> ChunkedKeys:
    """Draw how keys are stored: as they are or as int8 codes, and in how many arrays."""
    coding = KeyCoding.fit(keys[:1000]) if generator.random() < 0.5 else None
    return ChunkedKeys(generator, keys if coding is None else coding.encode(keys), coding)


def draw_queries(generator: Generator, keys: np.ndarray, count: int) -> np.ndarray:
    """Draw queries [count, d] that are near keys, far from all of them, huge, or not finite."""
    dimension = keys.shape[1]
    spread = float(keys[:1000].astype(np.float32).std()) + 1e-3
    queries = keys[generator.integers(len(keys), size=count)].astype(np.float32)
    noise = generator.standard_normal((count, dimension), np.float32) * spread
    queries = queries + noise * generator.choice(np.float32([0, 0.01, 0.3, 3, 100]), size=(count, 1))
    far = generator.standard_normal(dimension).astype(np.float32)
    queries[generator.random(count) < 0.2] += generator.choice([10.0, 1000.0]) * spread * far
    # Hypotheses of one sentence are often nearly the same.
    again = np.flatnonzero(generator.random(count - 1) < 0.3)
    queries[again + 1] = queries[again] * np.float32(1.0001)
    for value in (np.nan, np.inf, -np.inf, 1e20, 3e38):
        if generator.random() < 0.2:
            queries[generator.integers(count), generator.integers(dimension)] = value
    return queries


def check_neighbours(
    keys: np.ndarray,
    queries: np.ndarray,
    distances: np.ndarray,
    entries: np.ndarray,
    removed: np.ndarray,
    *,
    rounding: float,
) -> None:
    """Check that each row holds different live entries, by ascending distances that are right, and then nothing."""
    usable = np.square(queries, dtype=np.float64).sum(1) < LARGEST_SQUARE
    assert (entries[~usable] == -1).all()
    there = entries >= 0
    assert (distances[~there] == np.inf).all()
    assert (there[:, :-1] >= there[:, 1:]).all(), "a neighbour behind a missing one"
    assert (entries < len(keys)).all()
    assert not np.isin(entries[there], removed).any(), "a removed entry was found"
    for row in np.flatnonzero(there[:, 0]):
        found = entries[row][there[row]]
        assert len(np.unique(found)) == len(found), "an entry was found twice"
        true = np.square(queries[row].astype(np.float64) - keys[found].astype(np.float64)).sum(1)
        np.testing.assert_allclose(distances[row][there[row]], true, rtol=1e-3, atol=1e-10 + rounding)
        assert (np.diff(distances[row][there[row]]) >= 0).all()


def search_memory(generator: Generator, totals: Totals, most_keys: int) -> None:
    """Build the index of one random memory, and search it in several ways."""
    # The library takes no more threads than torch has, and threads that wait for a busy core are slow.
    torch.set_num_threads(int(generator.choice([1, 1, 1, 2])))
    dimension = int(generator.choice(DIMENSIONS))
    most = min(most_keys, MOST_NUMBERS // dimension)
    size = int(math.exp(generator.uniform(0, math.log(most))))
    source = draw_source(generator, draw_keys(generator, size, dimension))
    keys, rounding = source.plain(), 0.0 if source.coding is None else float(np.square(source.coding.step).max())
    index = build_index(source, DEFAULT, seed=int(generator.integers(1000)), threads=1)
    assert isinstance(index, NativeIndex)
    totals.memories += 1
    totals.keys += size
    for setting in generator.choice(SETTINGS, size=4):
        if setting == EVERYWHERE and size > 20_000:
            continue
        k = int(generator.choice([1, 2, 8, 8, 16, 33, 64]))
        queries = draw_queries(generator, keys, int(generator.choice([1, 5, 40, 160])))
        removed = np.flatnonzero(generator.random(size) < generator.choice([0, 0, 0.1, 0.9, 1]))
        searched = index.without(removed) if len(removed) else index
        probing = searched.probing(k) if setting == DEFAULT else _probing(searched, setting, k)
        distances, entries = (
            each.numpy()
            for each in searched.ivf.search(
                torch.from_numpy(queries),
                k,
                probing,
                searched.live,
                group_size=int(generator.choice([1, 4, 5])),
            )
        )
        totals.queries += len(queries)
        check_neighbours(keys, queries, distances, entries, removed, rounding=1e-8 * rounding)
        # Each key has two places. Where the pool holds all of them, whatever their codes, nothing may be missed.
        if setting == EVERYWHERE and 2 * (size - len(removed)) <= probing.rerank:
            _compare_with_exact(np.delete(keys, removed, axis=0), queries, distances, k)


def _probing(index: NativeIndex, setting: str, k: int) -> SearchLimits:
    """Read how far a setting searches."""
    numbers = dict(part.split("=") for part in setting.split(";")[1:])
    settings = replace(
        index.settings,
        nprobe=int(numbers["nprobe"]),
        rerank=int(numbers["rerank"]),
        prune_ratio=float(numbers.get("prune_ratio", index.settings.prune_ratio)),
    )
    return replace(index, settings=settings).probing(k)


def _compare_with_exact(keys: np.ndarray, queries: np.ndarray, distances: np.ndarray, k: int) -> None:
    """Check that the distances [q, k] found are those of the nearest keys, up to rounding."""
    if not len(keys):
        assert (distances == np.inf).all()
        return
    true = ExactIndex(ArrayKeys(keys)).search(torch.from_numpy(queries), k).distances.numpy()
    np.testing.assert_allclose(distances, true, rtol=1e-3, atol=1e-3 * float(np.square(keys, dtype=np.float64).max()))


def draw_compactor(generator: Generator, inputs: int, outputs: int) -> Compactor | None:
    """Draw any kind of compactor, or none."""
    kind = str(generator.choice(["none", "linear", "network", "network"]))
    if kind == "linear":
        mean = torch.randn(inputs) if generator.random() < 0.5 else None
        return LinearCompactor("svd" if mean is None else "pca", torch.randn(outputs, inputs), mean)
    if kind == "network":
        network = NetworkCompactor(inputs, int(generator.choice([1, 40, 64])), outputs, "sigmoid").requires_grad_(False)
        network.outer.weight.mul_(20)
        return network
    return None


def draw_combiner(generator: Generator, typical: float) -> Combiner:
    """Draw any kind of combiner for a space of this typical squared distance."""
    k = int(generator.choice([1, 4, 8, 16]))
    return [
        FixedCombiner(k, float(generator.choice([0.0, 0.4, 1.0])), typical),
        AdaptiveCombiner(MetaK(k, scale=typical).requires_grad_(False), typical),
        DistanceDecayCombiner(typical * float(generator.choice([0.01, 1.0])), k=k),
    ][int(generator.integers(3))]


def decode_steps(generator: Generator, totals: Totals) -> None:
    """Run the native step of any compactor, index and combiner against its parts, for a few sentences."""
    inputs, outputs = int(generator.choice([16, 48, 64, 512])), int(generator.choice([16, 64, 128]))
    size, vocabulary = int(math.exp(generator.uniform(3, 9))), int(generator.choice([70, 1000]))
    beam = int(generator.choice([1, 4, 5]))
    torch.manual_seed(int(generator.integers(1 << 30)))
    compactor = draw_compactor(generator, inputs, outputs)
    states = torch.randn(size, inputs) * float(generator.choice([0.01, 1.0]))
    keys = (states if compactor is None else compactor(states)).half().numpy()
    searched: Index = build_index(ArrayKeys(keys), DEFAULT, seed=0, threads=1)
    values = torch.randint(0, vocabulary, (size,))
    combiner = draw_combiner(generator, 2 * float(keys.astype(np.float64).var(axis=0).sum()) + 1e-6)
    if compactor is not None:
        whole = bool(generator.random() < 0.5)
        searched = CompactedIndex(searched, place_compactor(compactor, "cpu", int16=whole))
    scorer = make_scorer(searched, EntryTable(values), combiner)
    assert isinstance(scorer, NativeScorer)
    assert scorer.step is not None
    totals.memories += 1
    totals.keys += size
    sentences = int(generator.choice([1, 3, 20]))
    beams = [NativeBeams([9] * sentences, beam=beam, eos=0, force_end=True) for _ in range(2)]
    while beams[0].open:
        rows = beams[0].rows
        queries = torch.randn(rows, inputs) * float(generator.choice([0.01, 1.0, 1000.0]))
        queries[torch.rand(rows) < 0.05] = float(generator.choice([np.nan, np.inf]))
        logits = 3 * torch.randn(rows, vocabulary)
        policy = RetrievalPolicy(float(generator.choice([0.5, np.inf])), math.inf, math.inf)
        count = min(2 * beam, vocabulary - 2)
        joined = scorer.step.best_tokens(queries, logits, beams[0], policy, count, (5, 7))
        if policy.margin < math.inf:
            queries = queries.masked_fill(beams[1].mask_lagging(policy.margin)[:, None], math.nan)
        found = scorer.retrieve(queries, beam)
        if beam == 1:
            apart = MemoryScorer(searched, EntryTable(values), combiner).retrieve(queries)
            assert torch.equal(found.entries, apart.entries)
            for name in ("base", "neighbours"):
                one, other = getattr(found.weights, name), getattr(apart.weights, name)
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        weights = found.weights
        expected = best_of_mixture(
            logits, count, base=weights.base, weights=weights.neighbours, values=found.values, banned=(5, 7)
        )
        assert torch.equal(joined.tokens, expected.tokens)
        assert torch.equal(joined.scores, expected.scores)
        totals.steps += 1
        totals.queries += rows
        for each in beams:
            each.advance(joined.scores, joined.tokens, 1.0)


def search_random_memories(seconds: float, seed: int, most_keys: int = MOST_KEYS) -> Iterator[tuple[int, Totals]]:
    """Search memory after memory until the time is over, and give the seed of each and the totals with it."""
    totals, end = Totals(), time.monotonic() + seconds
    while time.monotonic() < end:
        generator = np.random.default_rng(seed)
        try:
            # Building measures recall by exact search, which takes minutes where many keys tie.
            with patch.object(builder, "_tune", lambda index, *_: index):
                if seed % 4 == 3:
                    decode_steps(generator, totals)
                else:
                    search_memory(generator, totals, most_keys)
        except BaseException as error:
            error.add_note(f"with the memory of seed {seed}")
            raise
        yield seed, totals
        seed += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first memory; the next ones follow")
    parser.add_argument("--most-keys", type=int, default=MOST_KEYS)
    chosen = parser.parse_args()
    library = native()
    assert library is not None, "the native library is not built"
    totals, spoken = Totals(), time.monotonic()
    for seed, totals in search_random_memories(chosen.seconds, chosen.seed, chosen.most_keys):
        if time.monotonic() > spoken + 60:
            print(f"{loaded_instructions()}: {totals}, last seed {seed}", flush=True)
            spoken = time.monotonic()
    print(f"{loaded_instructions()}: {totals}: no error", flush=True)


if __name__ == "__main__":
    main()
