"""The arithmetic of races, and what the contenders have in common."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
import torch

from ibidem.combine import Weights, best_candidates
from ibidem.errors import UsageError
from ibidem.evaluate.bench import Benchmark, Round, System, dense_candidates, grow_keys, run_benchmark, time_search
from ibidem.evaluate.bench.growth import SearchTime, fit_growth
from ibidem.evaluate.bench.report import BenchSettings
from ibidem.retrieve import ArrayKeys


def test_ratios_compare_the_same_rounds() -> None:
    done = Benchmark(
        batch=2,
        beam=1,
        sentences=8,
        rounds={
            "slow": [Round(2.0, 4.0, 100), Round(8.0, 4.0, 100), Round(4.0, 4.0, 100)],
            "fast": [Round(1.0, 1.0, 50), Round(2.0, 1.0, 50), Round(1.0, 1.0, 50)],
        },
    )
    assert done.ratio("fast", "slow") == 4.0
    assert done.ratio("slow", "fast") == 0.25
    assert done.speed("slow") == 25.0
    figures = done.to_json()["contenders"]["fast"]
    assert figures["sentences_per_second"] == 8.0
    assert figures["speed_over"] == {"slow": 4.0}


def test_every_contender_gets_every_sentence_in_every_round() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def contender(name: str) -> System:
        def translate(batch: list[list[int]], beam: int) -> int:  # type: ignore[misc]
            assert beam == 3
            assert len(batch) <= 2
            seen[name] += [ids[0] for ids in batch]
            return len(batch)

        return System(name, translate)  # type: ignore[arg-type]

    done = run_benchmark([contender("a"), contender("b")], [[i] * (i + 1) for i in range(5)], batch=2, beam=3, rounds=2)
    warmed = 5
    for numbers in seen.values():
        assert sorted(numbers[warmed:]) == sorted(list(range(5)) * 2)
    assert {name: [found.tokens for found in rounds] for name, rounds in done.rounds.items()} == {
        "a": [5, 5],
        "b": [5, 5],
    }
    with pytest.raises(UsageError, match="at least one sentence"):
        run_benchmark([contender("a")], [], batch=1, beam=1)


def test_contenders_take_turns_within_a_round() -> None:
    order: list[str] = []

    def contender(name: str) -> System:
        def translate(batch: list[list[int]], beam: int) -> int:  # type: ignore[misc]  # noqa: ARG001
            order.append(name)
            return 1

        return System(name, translate)  # type: ignore[arg-type]

    run_benchmark([contender("a"), contender("b")], [[i] for i in range(20)], batch=1, beam=1, rounds=1)
    turns = ["".join(group) for _, group in groupby(order)]
    assert max(map(len, turns)) <= 6  # two or three batches a heat, and the last of one may begin the next
    assert order.count("a") == order.count("b") == 40
    assert len({order[0], order[len(order) // 2]}) == 2  # another one begins


def test_published_mixture_is_ours_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 40, generator=generator)
    values = torch.randint(10, (6, 8), generator=generator)
    shares = torch.rand(6, 9, generator=generator)
    shares /= shares.sum(dim=1, keepdim=True)
    weights = Weights(shares[:, 0], shares[:, 1:])
    banned = torch.tensor([3])
    ours = best_candidates(logits.clone(), weights, values, 8, banned)
    theirs = dense_candidates(logits.clone(), weights, values, 8, banned)
    assert torch.equal(ours.tokens, theirs.tokens)
    torch.testing.assert_close(ours.log_probs, theirs.log_probs)


def test_keys_are_taken_first_and_then_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.growth._BLOCK", 100)
    own = np.random.default_rng(0).standard_normal((250, 8)).astype(np.float16)
    grown = grow_keys(ArrayKeys(own), 1000, seed=1)
    everything = grown.gather(np.arange(1000))
    assert np.array_equal(everything[:200], own[:200])
    assert len(np.unique(everything, axis=0)) == 1000
    assert np.array_equal(everything, grow_keys(ArrayKeys(own), 1000, seed=1).gather(np.arange(1000)))
    timed = time_search(grown, torch.randn(20, 8), "exact", batches=[1, 4], k=3, rounds=2, seed=0)
    assert timed.keys == 1000
    assert set(timed.microseconds) == {1, 4}
    assert all(time > 0 for time in timed.microseconds.values())


def test_growth_is_an_exponent() -> None:
    times = [SearchTime(keys, "any", 1.0, {5: 3 * keys**0.5, 40: 7.0}) for keys in (1000, 4000, 20000)]
    assert fit_growth(times) == {5: pytest.approx(0.5), 40: pytest.approx(0.0)}
    assert fit_growth(times[:1]) == fit_growth([]) == {}


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="Nothing is known of 'marian'"):
        BenchSettings(against=("marian",))
    with pytest.raises(UsageError, match="batches"):
        BenchSettings(batches=(0,))
