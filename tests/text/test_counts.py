from __future__ import annotations

import json
from dataclasses import asdict

from ibidem.text import Counts


def test_it_describes_itself_in_one_line() -> None:
    counts = Counts(read=1200, kept=1180, dropped={"fuzzy": 8, "empty source": 12})
    assert counts.describe() == "read 1,200 pairs, kept 1,180, dropped 20 (12 empty source, 8 fuzzy)"


def test_it_says_nothing_of_drops_that_did_not_happen() -> None:
    counts = Counts()
    counts.keep()
    assert counts.describe() == "read 1 pair, kept 1"


def test_it_becomes_json() -> None:
    counts = Counts()
    counts.keep()
    counts.drop("fuzzy")
    counts.drop("fuzzy")
    assert json.loads(json.dumps(asdict(counts))) == {"read": 3, "kept": 1, "dropped": {"fuzzy": 2}}
