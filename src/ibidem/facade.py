"""The memory as users meet it: the folder, and `learn` that makes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem import memory
from ibidem.progress import Progress, silent
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.learn import LearnSettings
    from ibidem.model import BaseModel

PathLike = str | os.PathLike[str]


class Memory(memory.Memory):
    """A folder that holds all that was learned of one domain."""

    @classmethod
    def learn(
        cls,
        model: BaseModel | PathLike | None = None,
        *,
        train: PathLike | Sequence[PathLike],
        path: PathLike,
        dev: PathLike | Sequence[PathLike] | None = None,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "float32",
        source_language: str | None = None,
        target_language: str | None = None,
        source_prefix: str = "",
        settings: LearnSettings | None = None,
        progress: Progress = silent,
    ) -> Memory:
        """Learn a memory from parallel text: one file (TMX, TSV, JSONL, PO, MO) or two line-aligned ones.

        Without a model the shipped one is used; without a dev set, pairs of the memory itself stand in for
        one. Interrupted, the same call goes on where it was.
        """
        from ibidem.learn import learn
        from ibidem.model import BaseModel, load_model

        if isinstance(model, BaseModel):
            base = model
        else:
            name = None if model is None else os.fspath(model)
            base = load_model(
                name,
                device=device,
                dtype=dtype,
                source_language=source_language,
                target_language=target_language,
                source_prefix=source_prefix,
            )
        corpus = open_corpus(train, base)
        dev_corpus = None if dev is None else open_corpus(dev, base)
        learnt = learn(base, corpus, Path(path), dev=dev_corpus, seed=seed, settings=settings, progress=progress)
        return cls.open(learnt.path)


def open_corpus(
    paths: PathLike | Sequence[PathLike],
    model: BaseModel,
    *,
    format: str | None = None,
    catalogue_language: str | None = None,
) -> Corpus:
    """A corpus in the languages of a model."""
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return Corpus(
        files,
        source_language=model.tokens.source_language or "de",
        target_language=model.tokens.target_language or "en",
        format=format,
        catalogue_language=catalogue_language,
    )
