"""cluster, compact, prune and restore as a user runs them on the tiny model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.memory import Layout, Memory

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

CPU = ("--device", "cpu")
SMALL = ("--dimension", 6, "--set", "batch=16", "--set", "updates=20")
SMALL_LEARN = tuple(word for name in ("dimension=6", "batch=16", "updates=20") for word in ("--set", f"compact.{name}"))


@pytest.fixture
def memory(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> Path:
    path = tmp_path / "memory"
    assert ibidem("extract", "--model", tiny_folder, "--train", few_file, "-o", path, *CPU).code == 0
    return path


def test_stage_by_stage_is_learn(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path, memory: Path) -> None:
    tuning = ("--set", "metak.updates=20", "--set", "contextual.updates=20", "--k", 2)
    learn_tuning = ("--set", "tune.metak.updates=20", "--set", "tune.contextual.updates=20", "--set", "tune.k=2")
    whole = tmp_path / "whole"
    learnt = ibidem(
        *("learn", "--model", tiny_folder, "--train", few_file, "-o", whole, *CPU, *learn_tuning),
        *("--compact", "network", *SMALL_LEARN, "--prune", 0.3, "--json"),
        *("--set", "keep_keys=true", "--set", "index=exact"),
    )
    assert learnt.code == 0, learnt.err
    for command in (
        ("cluster", "-m", memory, *CPU),
        ("compact", "-m", memory, *SMALL, *CPU),
        ("tune", "-m", memory, *tuning, "--index", "exact", *CPU),
        ("prune", "-m", memory, "--rate", 0.3, *CPU),
        ("index", "-m", memory, "exact"),
    ):
        answer = ibidem(*command)
        assert answer.code == 0, answer.err
    once, staged = Memory.open(whole), Memory.open(memory)
    assert staged.layout == once.layout == Layout(keys=True, compact=6, clusters=True)
    np.testing.assert_array_equal(staged.rows(), once.rows())
    assert {found.manifest.stages["prune"]["settings"]["strategy"] for found in (once, staged)} == {"redundant"}
    digests = [{name: notes.get("digest") for name, notes in found.manifest.stages.items()} for found in (once, staged)]
    assert digests[0] == digests[1]
    inspected = ibidem("inspect", "-m", whole)
    assert "pruned (30" in inspected.out
    assert "6 dimensions" in inspected.out
    described = json.loads(ibidem("inspect", "-m", whole, "--json").out)
    assert described["snapshots"] == ["unpruned"]
    assert described["tokens"] > described["entries"]
    assert ibidem("verify", "-m", whole).code == 0
    assert ibidem("translate", "-m", whole, stdin="Hallo Welt").code == 0
    restored = json.loads(ibidem("restore", "-m", whole, "--json").out)
    assert restored["entries"] == restored["tokens"]


def test_compact_prints_the_next_command(ibidem: Run, memory: Path) -> None:
    answer = ibidem("compact", "-m", memory, "pca", "--dimension", 4, *CPU)
    assert (answer.code, answer.err) == (
        0,
        f"The combiners belonged to the former space: run `ibidem tune -m {memory}`, and `ibidem index` for a CPU.\n",
    )
    assert ibidem("compact", "-m", memory, "svd", "--dimension", 3, *CPU).code == 0
    assert Memory.open(memory).dimension == 3
    assert ibidem("translate", "-m", memory, stdin="Hallo").code == 0  # weighed by distance alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cluster", "--set", "eps=-1"), "give a distance above 0"),
        (("cluster", "--method", "spectral"), "use one of auto, dbscan, birch, none"),
        (("compact", "kmeans"), "use one of general, network, pca, svd, none"),
        (("compact", "none"), "trains no compactor"),
        (("compact", "general"), "has no general compactor"),
        (("compact", "network"), "run `ibidem cluster` first"),
        (("compact", "pca", "--dimension", 999), "999"),
        (("compact", "--set", "objectives=nce+love"), "use nce, ranking, prediction"),
        (("compact", "--compactor", "nowhere.safetensors"), "cannot be opened"),
        (("prune", "--rate", 1.5), "0.1 removes one in ten"),
        (("prune", "--strategy", "best"), "cost-clusters, redundant, random"),
        (("prune", "--strategy", "spatial"), "run `ibidem cluster` first"),
        (("restore",), "cannot be restored"),
    ],
)
def test_invalid_arguments_give_one_line(
    ibidem: Run, memory: Path, arguments: tuple[object, ...], message: str
) -> None:
    generation = Memory.open(memory).generation
    command, *others = arguments
    answer = ibidem(command, *others, "-m", memory, *(() if command == "restore" else CPU))
    assert answer.code in (1, 2)
    assert message in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert Memory.open(memory).generation == generation
    assert Memory.open(memory).verify() == []


def test_a_file_that_is_no_compactor(ibidem: Run, memory: Path, tmp_path: Path) -> None:
    junk = tmp_path / "junk.safetensors"
    junk.write_bytes(b"\xff" * 100)
    answer = ibidem("compact", "-m", memory, "--compactor", junk, *CPU)
    assert answer.code == 1
    assert "junk.safetensors" in answer.err
    assert answer.err.count("\n") == 1
