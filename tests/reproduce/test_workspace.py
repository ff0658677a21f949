"""Stages built in a workspace, with the tiny model on a few of our own sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.learn import MetaKSettings
from ibidem.memory import Memory
from ibidem.reproduce.stages import Extracted, Tuned, copy_memory
from ibidem.reproduce.workspace import RunSettings, Workspace, short_name

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copied_memory_has_its_own_lock(setting: RunSettings, tmp_path: Path) -> None:
    workspace = Workspace(setting)
    workspace.make_all([Extracted(("koran",))])
    source = workspace.folder(Extracted(("koran",)))
    copies = [copy_memory(source, tmp_path / name) for name in ("one", "two")]
    with copies[0].edit(), copies[1].edit(), Memory.open(source).edit():
        pass
    shared = next((source / "segments").rglob("keys*"))
    assert (tmp_path / "one" / shared.relative_to(source)).stat().st_ino == shared.stat().st_ino


def test_an_interrupted_stage_is_built_again(setting: RunSettings) -> None:
    workspace = Workspace(setting)
    stage = Tuned(Extracted(("koran",)), "koran", 4, MetaKSettings(updates=20, validate_every=10))
    workspace.make_all([stage])
    (workspace.folder(stage) / "done.json").unlink()
    workspace = Workspace(setting)
    assert not workspace.is_made(stage)
    workspace.make_all([stage])
    assert workspace.is_made(stage)


@pytest.mark.parametrize(
    ("name", "short"),
    [("/home/me/models/big", "big"), ("facebook/wmt19-de-en", "facebook/wmt19-de-en")],
)
def test_a_models_name_without_its_folder(name: str, short: str) -> None:
    assert short_name(name) == short
