"""The memory as users meet it: the folder, and `learn` that makes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem import memory
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent
from ibidem.text import Corpus, Written, same_language, write_pairs

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
        dtype: str = "auto",
        source_language: str | None = None,
        target_language: str | None = None,
        source_prefix: str = "",
        settings: LearnSettings | None = None,
        progress: Progress = silent,
    ) -> Memory:
        """Learn a memory from parallel text: one file (TMX, XLIFF, TSV, JSONL, PO, MO) or two line-aligned ones.

        Without a model the shipped one is used; without a dev set, pairs of the memory itself stand in for
        one. Interrupted, the same call goes on where it was.
        """
        from ibidem.learn import learn
        from ibidem.model import BaseModel, load_model

        if isinstance(model, BaseModel):
            model.check_languages(source_language, target_language)
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

    def export(self, path: PathLike, *, format: str | None = None, progress: Progress = silent) -> Written:
        """Write all pairs, with where they came from, to a TMX, TSV or JSONL file, which `learn` can read again."""
        return export_pairs(self, path, format=format, progress=progress)


def export_pairs(
    exported: memory.Memory,
    path: PathLike,
    *,
    format: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    progress: Progress = silent,
) -> Written:
    """Write the pairs of a memory; the languages are its own, where its model says which they are."""
    own = (exported.identity.source_language, exported.identity.target_language)
    for side, known, given in zip(("source", "target"), own, (source_language, target_language), strict=True):
        if known is not None and given is not None and not same_language(known, given):
            raise UsageError(
                f"The {side} language of {exported.path} is {known}, not {given}: leave --{side}-language out."
            )
    source, target = source_language or own[0], target_language or own[1]
    if source is None or target is None:
        raise UsageError(
            f"{exported.path} does not say which languages its pairs are in: name them with --source-language and "
            "--target-language."
        )
    return write_pairs(
        exported.sentences(),
        path,
        source_language=source,
        target_language=target,
        format=format,
        total=exported.active_pairs,
        progress=progress,
    )


def open_corpus(
    paths: PathLike | Sequence[PathLike],
    model: BaseModel,
    *,
    format: str | None = None,
    catalogue_language: str | None = None,
) -> Corpus:
    """A corpus in the languages of a model; raises UsageError where they are needed to read it and not known."""
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    corpus = Corpus(
        files,
        source_language=model.tokens.source_language or "de",
        target_language=model.tokens.target_language or "en",
        format=format,
        catalogue_language=catalogue_language,
    )
    if corpus.declares_languages and None in (model.tokens.source_language, model.tokens.target_language):
        raise UsageError(
            f"The model {model.name} does not say which languages it translates, and {corpus.format} files "
            "name theirs: give --source-language and --target-language."
        )
    return corpus
