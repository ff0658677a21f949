"""--set reaches every setting, and says what it cannot read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ibidem.cli.overrides import override
from ibidem.errors import UsageError
from ibidem.learn import ClusterSettings, CompactSettings, LearnSettings


def test_values_are_read_by_the_type_of_their_field() -> None:
    settings = CompactSettings()
    changed = override(settings, ["hidden=quarter-input", "patience=3", "held-out=0.1", "clusters=false", "svd_rows=7"])
    assert changed == replace(settings, hidden="quarter-input", patience=3, held_out=0.1, clusters=False, svd_rows=7)
    assert override(changed, ["hidden=96", "svd_rows=none"]) == replace(changed, hidden=96, svd_rows=None)
    assert override(ClusterSettings(), ["eps=2.5", "smallest=9"]) == ClusterSettings(eps=2.5, smallest=9)


def test_the_settings_of_a_part_are_reached_by_its_name() -> None:
    changed = override(LearnSettings(), ["prune.min_samples=3", "compact.label_smoothing=0.1", "tune.metak.updates=9"])
    assert changed.prune == replace(LearnSettings().prune, min_samples=3)
    assert changed.compact == replace(LearnSettings().compact, label_smoothing=0.1)
    assert changed.tune.metak.updates == 9


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("patience", "has no value"),
        ("patience=many", "takes a whole number"),
        ("clusters=1", "true or false"),
        ("patient=1", "names nothing: use one of method, dimension"),
        ("objectives=nce", "names nothing"),
        ("patience.more=1", "names nothing"),
        ("patience=0", "must be at least 1"),
    ],
)
def test_what_cannot_be_set(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override(CompactSettings(), [assignment])
