"""Pruning of a memory, its restoration, and its settings."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from ibidem.errors import UsageError
from ibidem.learn import (
    ClusterSettings,
    CompactSettings,
    PruneSettings,
    build_neighbour_graph,
    cluster_memory,
    compact_memory,
    prune_memory,
    restore_memory,
    translation_costs,
)
from ibidem.learn.prune.pruning import STRATEGIES
from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"strategy": "magic"},
            "use one of cost-clusters, redundant, random, low-probability, high-probability, spatial.",
        ),
        ({"groups": "word"}, "use one of token, ngram, consistent."),
        ({"method": "kmeans"}, "use one of greedy, dbscan, birch."),
        ({"rule": "ceil"}, "use one of exact, floor."),
        ({"rate": 1.0}, "from 0 to below 1, not 1.0"),
        ({"rate": -0.1}, "from 0 to below 1, not -0.1"),
        ({"rate": float("nan")}, "from 0 to below 1, not nan"),
        ({"epsilon": 0.0}, "above 0, not 0.0"),
        ({"epsilon": float("inf")}, "above 0, not inf"),
        (
            {"strategy": "redundant", "groups": "consistent"},
            "groups has no effect on the pruning strategy redundant: leave it out, or set the strategy to "
            "cost-clusters, random, low-probability or high-probability.",
        ),
        ({"n": 0}, "n must be a whole number from 1 up, not 0"),
        ({"group_n": 0}, "group_n must be a whole number from 1 up, not 0"),
        ({"consistent_neighbours": 0}, "consistent_neighbours must be a whole number from 1 up, not 0"),
        ({"consistent_neighbours": 17}, "consistent_neighbours is at most 16"),
        ({"min_samples": 0}, "min_samples must be a whole number from 1 up, not 0"),
        ({"seed": -1}, "seed must be a whole number from 0 up, not -1"),
        ({"n": 1.5}, "n must be a whole number from 1 up, not 1.5"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        PruneSettings(**wrong)


def test_the_share_kept_is_exact() -> None:
    assert PruneSettings(rate=0.9).kept_share == Fraction(1, 10)
    assert PruneSettings(rate=0.123456).kept_share == Fraction(876544, 10**6)
    assert PruneSettings(rate=0.0).kept_share == 1


def test_groups_share_one_token_or_more() -> None:
    assert PruneSettings().grouped_tokens == 3
    assert PruneSettings(strategy="random").grouped_tokens == 1
    assert PruneSettings(groups="token").grouped_tokens == 1
    assert PruneSettings(strategy="random", groups="ngram", group_n=2).grouped_tokens == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pruning_keeps_entries_as_they_were(learnt: Memory, tmp_path: Path, strategy: str) -> None:
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    if strategy == "spatial":
        memory = cluster_memory(memory, ClusterSettings())
    pruned = prune_memory(memory, PruneSettings(strategy=strategy, rate=0.5))
    rows = pruned.rows()
    assert pruned.verify() == []
    assert pruned.entries == len(rows) == pruned.manifest.stages["prune"]["entries"]
    np.testing.assert_array_equal(pruned.values(), memory.values()[rows])
    np.testing.assert_array_equal(pruned.log_probs(), memory.log_probs()[rows])
    np.testing.assert_array_equal(pruned.keys.read(0, pruned.entries), memory.keys.gather(rows))
    # Costs are those of the whole sentences, so a pruned memory can be pruned again as if it were new.
    costs = translation_costs(memory.log_probs(), memory.token_offsets())
    np.testing.assert_array_equal(translation_costs(pruned.token_log_probs(), pruned.token_offsets()), costs)
    again = prune_memory(pruned, PruneSettings(strategy=strategy, rate=0.2))
    assert set(again.rows()) < set(rows)
    assert again.manifest.stages["prune"]["earlier"]["entries"] == pruned.entries
    restored = restore_memory(again)
    np.testing.assert_array_equal(restored.values(), memory.values())
    assert restored.verify() == []
    with pytest.raises(UsageError, match="cannot be restored"):
        restore_memory(restored)


@pytest.mark.parametrize("settings", [PruneSettings(strategy="redundant"), PruneSettings(groups="consistent")])
def test_a_given_neighbour_graph_gives_the_same_result(learnt: Memory, tmp_path: Path, settings: PruneSettings) -> None:
    settings, found = replace(settings, rate=0.3), []
    # A graph with more neighbours than needed is cut.
    for name, count in (("now", None), ("before", 40)):
        memory = Memory.open(shutil.copytree(learnt.path, tmp_path / name))
        graph = None if count is None else build_neighbour_graph(memory, count, device=torch.device("cpu"))
        found.append(prune_memory(memory, settings, graph=graph))
    np.testing.assert_array_equal(found[0].rows(), found[1].rows())
    with pytest.raises(UsageError, match="build it again"):
        prune_memory(found[1], settings, graph=graph, again=True)


def test_pruning_without_a_snapshot_cannot_be_restored(learnt: Memory, tmp_path: Path) -> None:
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    pruned = prune_memory(memory, PruneSettings(rate=0.5), keep_unpruned=False)
    assert pruned.snapshots() == []
    with pytest.raises(UsageError, match="cannot be restored"):
        restore_memory(pruned)
    with pytest.raises(UsageError, match="ibidem restore"):
        cluster_memory(pruned, ClusterSettings())
    with pytest.raises(UsageError, match="ibidem restore"):
        compact_memory(pruned, CompactSettings(method="pca", dimension=3))


def test_pruning_that_removes_nothing_takes_no_snapshot(learnt: Memory, tmp_path: Path) -> None:
    """Later stages must work without the snapshot."""
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    pruned = prune_memory(memory, PruneSettings(rate=1e-5))
    assert pruned.entries == pruned.tokens
    assert pruned.snapshots() == []
    compacted = compact_memory(pruned, CompactSettings(method="pca", dimension=3), keep_keys=True)
    assert compacted.verify() == []
    assert "prune" not in compacted.manifest.stages
    with pytest.raises(UsageError, match="prunes nothing"):
        prune_memory(memory, PruneSettings(rate=0.0))


def test_forgetting_a_snapshot_keeps_what_the_edit_has_written(learnt: Memory, tmp_path: Path) -> None:
    """As after a kill between restoring a memory and forgetting its snapshot."""
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    with memory.edit() as edit:
        edit.keep_snapshot("unpruned")
    compacted = compact_memory(memory, CompactSettings(method="pca", dimension=3), keep_keys=True)
    assert compacted.verify() == []
    assert compacted.snapshots() == []
    with pytest.raises(UsageError, match="cannot be restored"):
        restore_memory(compacted)
