from __future__ import annotations

import json
import math
from dataclasses import dataclass, make_dataclass

import pytest

from ibidem.learn import CompactSettings, PruneSettings
from ibidem.reproduce.plan import System
from ibidem.reproduce.results import agrees, describe, digest
from ibidem.reproduce.rows.translation import Translation


@dataclass(frozen=True)
class Inner:
    size: int = 3
    name: str = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    rates: tuple[float, ...] = ()


def test_equal_declarations_have_one_digest_and_others_another() -> None:
    one = Outer(Inner(4), (0.1, 0.2))
    assert digest(one) == digest(Outer(Inner(4), (0.1, 0.2)))
    others = [Outer(Inner(5), (0.1, 0.2)), Outer(Inner(4), (0.2, 0.1)), Outer(Inner(4, "b"), (0.1, 0.2)), Inner(4)]
    assert len({digest(thing) for thing in [one, *others]}) == 5
    assert digest(one, "here") != digest(one, "there") != digest(one)


def test_a_setting_added_later_orphans_nothing() -> None:
    longer = make_dataclass("Inner", [("size", int, 3), ("name", str, "a"), ("new", bool, False)], frozen=True)
    assert digest(longer(4)) == digest(Inner(4))
    assert agrees(describe(Inner(4)), longer(4))
    assert digest(longer(4, new=True)) != digest(Inner(4))


def test_a_default_that_changed_is_noticed() -> None:
    changed = make_dataclass("Inner", [("size", int, 3), ("name", str, "other")], frozen=True)
    assert digest(changed(4)) == digest(Inner(4))
    assert not agrees(describe(Inner(4)), changed(4))


@pytest.mark.parametrize(
    "row",
    [
        Translation(System(seed=0), "it"),
        Translation(System(("it",), "it", compact=CompactSettings(), prune=PruneSettings(rate=0.3)), "it", "dev"),
    ],
)
def test_descriptions_survive_json(row: Translation) -> None:
    assert agrees(json.loads(json.dumps(describe(row))), row)


def test_numbers_outside_of_json_are_written_as_words() -> None:
    assert describe(Outer(Inner(), (0.5, math.inf)))["rates"] == [0.5, "inf"]
