"""The examples in the docstrings of the public functions run as they are written."""

from __future__ import annotations

import doctest
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.learn import (
    AdaptSettings,
    ContextualSettings,
    LearnSettings,
    MemoryWriter,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    adapt_model,
    combiner_training,
    extract,
    fine_tune,
    group_entries,
    label_dbscan,
    learn,
    make_batches,
    prune_entries,
    prune_memory,
    translation_costs,
    tune,
    tuning,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sentences: list[Any]) -> Path:
    """A folder with the files that the examples read."""
    folder = tmp_path_factory.mktemp("examples")
    for name, rows in (("train", sentences[:40]), ("dev", sentences[40:50])):
        text = "".join(f"{row.german}\t{row.english}\n" for row in rows)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    return folder


# `learn` makes the memory that the examples of `tune` and `prune_memory` open.
@pytest.mark.parametrize(
    "documented",
    [
        AdaptSettings,
        AdaptSettings.rate,
        LearnSettings,
        PruneSettings,
        TuneSettings,
        group_entries,
        label_dbscan,
        make_batches,
        prune_entries,
        translation_costs,
        extract,
        learn,
        tune,
        prune_memory,
        MemoryWriter,
        fine_tune,
        adapt_model,
    ],
)
def test_example(documented: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    adaptive, contextual = combiner_training.train_adaptive, tuning.train_contextual

    def train_adaptive(examples: Any, temperature: float, settings: MetaKSettings, **options: Any) -> Any:
        return adaptive(examples, temperature, replace(settings, updates=20), **options)

    def train_contextual(examples: Any, settings: ContextualSettings, **options: Any) -> Any:
        return contextual(examples, replace(settings, updates=20), **options)

    monkeypatch.setattr(combiner_training, "train_adaptive", train_adaptive)
    monkeypatch.setattr(tuning, "train_contextual", train_contextual)
    module = inspect.getmodule(documented)
    examples = doctest.DocTestFinder(recurse=False).find(documented, globs=vars(module).copy())
    assert sum(len(found.examples) for found in examples) > 0
    for found in examples:
        result = doctest.DocTestRunner().run(found)
        assert result.failed == 0
