"""Benchmarks time the same sentences with every system, in turns."""

from __future__ import annotations

from itertools import groupby

import pytest

from ibidem.errors import UsageError
from ibidem.evaluate.bench import Benchmark, Round, System, run_benchmark


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
    figures = done.to_json()["systems"]["fast"]
    assert figures["sentences_per_second"] == 8.0
    assert figures["speed_over"] == {"slow": 4.0}


def test_every_system_translates_every_sentence_in_every_round() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def system(name: str) -> System:
        def translate(batch: list[list[int]], beam: int) -> int:  # type: ignore[misc]
            assert beam == 3
            assert len(batch) <= 2
            seen[name] += [ids[0] for ids in batch]
            return len(batch)

        return System(name, translate)  # type: ignore[arg-type]

    done = run_benchmark([system("a"), system("b")], [[i] * (i + 1) for i in range(5)], batch=2, beam=3, rounds=2)
    warmed = 5
    for numbers in seen.values():
        assert sorted(numbers[warmed:]) == sorted(list(range(5)) * 2)
    assert {name: [found.tokens for found in rounds] for name, rounds in done.rounds.items()} == {
        "a": [5, 5],
        "b": [5, 5],
    }
    with pytest.raises(UsageError, match="at least one sentence"):
        run_benchmark([system("a")], [], batch=1, beam=1)


def test_systems_take_turns_within_a_round() -> None:
    order: list[str] = []

    def system(name: str) -> System:
        def translate(batch: list[list[int]], beam: int) -> int:  # type: ignore[misc]  # noqa: ARG001
            order.append(name)
            return 1

        return System(name, translate)  # type: ignore[arg-type]

    run_benchmark([system("a"), system("b")], [[i] for i in range(20)], batch=1, beam=1, rounds=1)
    turns = ["".join(group) for _, group in groupby(order)]
    assert max(map(len, turns)) <= 6  # two or three batches a part, and the last system of one may begin the next
    assert order.count("a") == order.count("b") == 40
    assert len({order[0], order[len(order) // 2]}) == 2  # another system begins
