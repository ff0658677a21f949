"""A failed stage reports whether it was committed, and the same command again completes it once."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import CommittedError, MemoryFolderError
from ibidem.learn import (
    ClusterSettings,
    CompactSettings,
    ContextualSettings,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    cluster_memory,
    compact_memory,
    index_memory,
    prune_memory,
    restore_memory,
    tune,
)
from ibidem.memory import Memory

if TYPE_CHECKING:
    from ibidem.model import BaseModel

PRUNE = PruneSettings(rate=0.3)
FULL = "No space left on device"


@pytest.fixture
def memory(learnt: Memory, tmp_path: Path) -> Memory:
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


def prune_with_failures(path: Path, patch: pytest.MonkeyPatch, first: int, last: int) -> int:
    """Prune with the steps from `first` to `last` failing, each a sync, rename or new folder; count all steps."""
    taken = 0

    def act() -> None:
        nonlocal taken
        taken += 1
        if first <= taken <= last:
            raise OSError(errno.ENOSPC, FULL)

    with patch.context() as inner:
        for owner, name in ((os, "fsync"), (os, "replace"), (Path, "mkdir")):
            real = getattr(owner, name)

            def step(*args: Any, _real: Any = real, _name: str = name, **kwargs: object) -> object:
                # The lock makes sure that its folder exists, which changes nothing on disk.
                if _name != "mkdir" or not args[0].is_dir():
                    act()
                return _real(*args, **kwargs)

            inner.setattr(owner, name, step)
        prune_memory(Memory.open(path), PRUNE)
    return taken


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_at_any_step_prunes_once(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool, every: int
) -> None:
    """Every `every`-th step fails, and each of the last six: the rename that commits, its sync, and the card."""
    whole = memory.entries
    finished = shutil.copytree(memory.path, tmp_path / "finished")
    steps = prune_with_failures(finished, monkeypatch, 0, 0)
    expected = Memory.open(finished)
    assert expected.entries < whole
    committed = 0
    assert steps > 20
    for step in sorted({*range(1, steps - 5, every), *range(steps - 5, steps + 1)}):
        path = shutil.copytree(memory.path, tmp_path / f"full-{step}")
        with pytest.raises(MemoryFolderError, match=FULL) as caught:
            prune_with_failures(path, monkeypatch, step, steps if lasting else step)
        found = Memory.open(path)
        assert found.verify() == []
        assert isinstance(caught.value, CommittedError) == (found.entries < whole)
        assert ("is committed, " in str(caught.value)) == (found.entries < whole)
        assert ("stays at its last committed generation" in str(caught.value)) == (found.entries == whole)
        committed += found.entries < whole
        again = prune_memory(Memory.open(path), PRUNE)
        assert (again.entries, again.rows().tolist()) == (expected.entries, expected.rows().tolist())
        assert "## prune" in (path / "README.md").read_text("utf-8")
        assert restore_memory(again).entries == whole
        shutil.rmtree(path)
    assert committed >= 4  # the sync after the rename, and three steps of the card


def test_pruning_again_must_be_requested(memory: Memory) -> None:
    pruned = prune_memory(memory, PRUNE)
    same = prune_memory(pruned, PRUNE)
    assert (same.generation, same.entries) == (pruned.generation, pruned.entries)
    index_memory(same, "exact")
    assert prune_memory(Memory.open(memory.path), PRUNE).entries == pruned.entries
    arguments = ["prune", "-m", str(memory.path), "--rate", "0.3", "--strategy", PRUNE.strategy]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert Memory.open(memory.path).entries == pruned.entries
    assert "changed nothing" in result.output
    final = prune_memory(pruned, PRUNE, keep_unpruned=False)
    assert (final.entries, final.snapshots()) == (pruned.entries, [])
    other = prune_memory(final, PruneSettings(rate=0.2))
    assert other.entries < final.entries
    less = prune_memory(other, PruneSettings(rate=0.2), again=True)
    assert less.entries < other.entries
    assert less.manifest.stages["prune"]["earlier"]["earlier"]["entries"] == pruned.entries


def test_repeated_pruning_does_nothing_although_pairs_changed(memory: Memory) -> None:
    pruned = prune_memory(memory, PRUNE)
    with pruned.writing() as writer:
        writer.record(removed=[0])
    left = pruned.sealed()
    assert prune_memory(left, PRUNE).entries == left.entries
    assert prune_memory(left, PRUNE, again=True).entries < left.entries


def test_a_completed_stage_is_not_repeated(memory: Memory, tiny: BaseModel) -> None:
    small = TuneSettings(
        k=2, sampled_pairs=20, metak=MetaKSettings(updates=20), contextual=ContextualSettings(updates=20)
    )
    pca = CompactSettings(method="pca", dimension=3)
    stages = {
        "cluster": lambda: cluster_memory(Memory.open(memory.path), ClusterSettings()),
        "compact": lambda: compact_memory(Memory.open(memory.path), pca, keep_keys=True),
        "tune": lambda: tune(Memory.open(memory.path), tiny, settings=small),
    }
    for name, stage in stages.items():
        done = stage()
        assert name in done.manifest.stages
        assert stage().generation == done.generation, name
    for stage in stages.values():  # each was made before the next, and is still that of these pairs
        assert stage().generation == done.generation
    with done.writing() as writer:
        writer.record(removed=[0])
    for name, stage in stages.items():
        before = Memory.open(memory.path).sealed()
        after = stage()
        assert after.generation > before.generation, name
        assert after.manifest.stages[name]["contents"] != before.manifest.stages.get(name, {}).get("contents")
    dropped = compact_memory(Memory.open(memory.path), pca, keep_keys=False)
    assert not dropped.layout.keys
    assert dropped.manifest.stages["tune"] == after.manifest.stages["tune"]


def test_a_damaged_combiner_is_tuned_again(memory: Memory, tiny: BaseModel) -> None:
    small = TuneSettings(
        k=2, sampled_pairs=20, metak=MetaKSettings(updates=20), contextual=ContextualSettings(updates=20)
    )
    tuned = tune(memory, tiny, settings=small)
    file = tuned.artefact("combiner_adaptive").path
    file.write_bytes(b"damaged")
    again = tune(Memory.open(memory.path), tiny, settings=small)
    assert again.generation > tuned.generation
    assert again.verify() == []
