"""--set reaches every setting, and the error names an invalid assignment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.cli.settings import ModelSettings, TextSettings, list_settings, override, override_parts
from ibidem.errors import UsageError
from ibidem.learn import ClusterSettings, CompactSettings, LearnSettings
from ibidem.serve import Limits

if TYPE_CHECKING:
    from .conftest import Run


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
        ("patient=1", "there is no setting 'patient': use one of method, dimension"),
        ("objectives=love", "use nce, ranking, prediction"),
        ("patience.more=1", "there is no setting"),
        ("patience=0", "must be at least 1"),
    ],
)
def test_what_cannot_be_set(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override(CompactSettings(), [assignment])


def test_parts_take_assignments_by_their_first_name() -> None:
    text, model, learn = override_parts(
        {"text": TextSettings(), "model": ModelSettings(), "": LearnSettings()},
        ["text.format=tsv", "model.dtype=float32", "compact.objectives=nce+ranking", "index=exact", "compactor=a/b.c"],
    )
    assert (text.format, model.dtype, learn.index, learn.compactor) == ("tsv", "float32", "exact", Path("a/b.c"))
    assert learn.compact.objectives == (("nce", 1.0), ("ranking", 1.0))


@pytest.mark.parametrize("settings", [TextSettings(), ModelSettings(), LearnSettings(), Limits()])
def test_every_setting_has_a_meaning_and_its_default_can_be_read(settings: Any) -> None:
    listed = list(list_settings(settings))
    assert [setting.name for setting in listed if not setting.meaning] == []
    readable = [f"{setting.name}={setting.default}" for setting in listed]
    assert override(settings, readable) == settings


def test_settings_are_listed(ibidem: Run) -> None:
    answer = ibidem("settings", "--search", "dimension")
    assert answer.code == 0
    assert "compact.dimension" in answer.out
    assert "prune.rate" not in answer.out
    assert "request_seconds" in ibidem("settings", "serve").out
    refused = ibidem("settings", "translate")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
