"""The public `Memory` with `learn` and `export`; `adapt`; and corpora in the languages of a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem import memory
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent
from ibidem.text import Corpus, Written, same_language, write_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.learn import Adaptation, AdaptSettings, LearnSettings, Measurement
    from ibidem.model import BaseModel

PathLike = str | os.PathLike[str]


class Memory(memory.Memory):
    """A memory folder: everything that was learned from one domain.

    Examples:
        >>> memory = Memory.open("memories/it")  # doctest: +SKIP
        >>> memory.export("it.tmx").pairs  # doctest: +SKIP
        3215
    """

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
        bad_pairs: str = "stop",
        settings: LearnSettings | None = None,
        on: str | None = None,
        workers: int | None = None,
        progress: Progress = silent,
    ) -> Memory:
        """Learn a memory from parallel text. After an interruption, the same call resumes.

        Args:
            model: A loaded model, or the name or folder of one; None for the shipped model.
            train: The parallel text: one file (TMX, XLIFF, TSV, JSONL, PO, MO) or two line-aligned files.
            path: The folder of the memory.
            dev: The dev set of the combiners; None samples pairs of the memory.
            seed: The seed of all stages.
            device: "auto", "cpu", "cuda" or "cuda:N", for a model that is not loaded yet.
            dtype: "auto", "float32", "float16", "bfloat16" or "int8", for a model that is not loaded yet.
            source_language: The source language of a multilingual model.
            target_language: The target language of a multilingual model.
            source_prefix: Text before every source, such as T5's task.
            bad_pairs: What to do about certain defects of the text, such as exchanged languages: "stop", "fix" or
                "keep"; see `ibidem.check.guard`.
            settings: The settings of all stages.
            on: "local", "ray", "ray://HOST:PORT" or "slurm:PARTITION": where extraction, clustering, compaction and the
                searches of pruning run in tasks, with the same result; None runs them in this process.
            workers: The number of tasks that run at the same time; None takes all CPUs.
            progress: Receives the progress.

        Returns:
            The memory, ready for translation.

        Raises:
            UsageError: An argument or a setting is invalid.
            ModelError: The model cannot be loaded.
            MismatchError: The folder holds a memory of another model, corpus or seed, or a worker has another model,
                code or arithmetic.
            WorkerError: The cluster cannot be reached, or a task cannot be run.
            TextError: A corpus cannot be read, has no usable pair, or has a certain defect and `bad_pairs` is "stop".

        Examples:
            >>> memory = Memory.learn(train="it.tmx", dev="dev.tsv", path="memories/it")  # doctest: +SKIP
        """
        from ibidem.check import check_policy, guard
        from ibidem.learn import learn, open_distribution
        from ibidem.model import BaseModel, load_model

        check_policy(bad_pairs)
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
        guard(corpus, bad_pairs, held_out=dev_corpus or (), progress=progress)
        threads = None if settings is None else settings.threads
        gpus = 1 if base.device.type == "cuda" else 0
        with open_distribution(on, workers, Path(path), threads=threads, gpus=gpus) as distribution:
            learnt = learn(
                base,
                corpus,
                Path(path),
                dev=dev_corpus,
                seed=seed,
                settings=settings,
                distribution=distribution,
                progress=progress,
            )
        return cls.open(learnt.path)

    def export(self, path: PathLike, *, format: str | None = None, progress: Progress = silent) -> Written:
        """Write all pairs with their origins to a file that `learn` can read.

        Args:
            path: The file; an existing one is replaced.
            format: "tmx", "tsv" or "jsonl"; None takes that of the file's ending.
            progress: Receives the number of pairs that are done.

        Returns:
            The number of pairs written, and how many of them were changed to fit the format.

        Raises:
            UsageError: The format is unknown, or the memory does not name its languages; then use `export_pairs`.
        """
        return export_pairs(self, path, format=format, progress=progress)


def adapt(
    model: PathLike | None = None,
    *,
    train: PathLike | Sequence[PathLike],
    path: PathLike,
    dev: PathLike | Sequence[PathLike] | None = None,
    general: PathLike | Sequence[PathLike] | None = None,
    device: str = "auto",
    source_language: str | None = None,
    target_language: str | None = None,
    source_prefix: str = "",
    settings: AdaptSettings | None = None,
    progress: Progress = silent,
    report: Callable[[Measurement], None] = lambda _: None,
) -> Adaptation:
    """Fine-tune a base model on parallel text into a new model folder. After an interruption, the same call resumes.

    Args:
        model: The name or folder of the base model; None for the shipped model.
        train: The parallel text of the domain: one file (TMX, XLIFF, TSV, JSONL, PO, MO) or two line-aligned files.
        path: The folder of the adapted model; it appears when it is complete.
        dev: The dev set that chooses the weights; None holds out pairs of `train`.
        general: General text that is mixed in, so that the model keeps its quality on other text.
        device: "auto", "cpu", "cuda" or "cuda:N".
        source_language: The source language of a multilingual model.
        target_language: The target language of a multilingual model.
        source_prefix: Text before every source, such as T5's task.
        settings: The settings of the training.
        progress: Receives the progress.
        report: Receives each measurement of the dev loss.

    Returns:
        The folder of the adapted model, and what was trained.

    Raises:
        UsageError: An argument or a setting is invalid, or the folder holds something else.
        ModelError: The model cannot be loaded.
        TextError: A corpus cannot be read, or has no usable pair.

    Examples:
        >>> adapted = adapt(train="it.tmx", dev="dev.tsv", path="models/it")  # doctest: +SKIP
        >>> memory = Memory.learn(adapted.path, train="it.tmx", dev="dev.tsv", path="memories/it")  # doctest: +SKIP
    """
    from ibidem.learn import adapt_model, check_target
    from ibidem.model import load_model

    check_target(Path(path))
    base = load_model(
        None if model is None else os.fspath(model),
        device=device,
        dtype="float32",
        source_language=source_language,
        target_language=target_language,
        source_prefix=source_prefix,
    )
    texts = [None if files is None else open_corpus(files, base) for files in (dev, general)]
    return adapt_model(
        base,
        open_corpus(train, base),
        Path(path),
        dev=texts[0],
        general=texts[1],
        settings=settings,
        progress=progress,
        report=report,
    )


def export_pairs(
    exported: memory.Memory,
    path: PathLike,
    *,
    format: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    progress: Progress = silent,
) -> Written:
    """Write the pairs of a memory to a file.

    Args:
        exported: The memory.
        path: The file.
        format: "tmx", "tsv" or "jsonl"; by default that of the ending.
        source_language: The source language, if the memory does not name it.
        target_language: The target language, if the memory does not name it.
        progress: Receives the number of pairs that are done.

    Returns:
        The number of pairs written.

    Raises:
        UsageError: A language is unknown, or differs from that of the memory.
    """
    own = (exported.identity.source_language, exported.identity.target_language)
    for side, known, given in zip(("source", "target"), own, (source_language, target_language), strict=True):
        if known is not None and given is not None and not same_language(known, given):
            raise UsageError(
                f"The {side} language of {exported.path} is {known}, not {given}: leave --{side}-language out."
            )
    source, target = source_language or own[0], target_language or own[1]
    if source is None or target is None:
        raise UsageError(
            f"{exported.path} does not name the languages of its pairs: give --source-language and --target-language."
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
    encoding: str | None = None,
) -> Corpus:
    """Open a corpus in the languages of a model.

    Args:
        paths: One file, or two line-aligned files.
        model: The model.
        format: The format of the files; by default that of their endings.
        catalogue_language: The language of the msgstr entries of a PO or MO file.
        encoding: The encoding of text that is neither UTF-8 nor UTF-16, such as "cp1252".

    Raises:
        UsageError: The format requires languages, and the model does not name its own.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    corpus = Corpus(
        files,
        source_language=model.tokens.source_language or "de",
        target_language=model.tokens.target_language or "en",
        format=format,
        catalogue_language=catalogue_language,
        encoding=encoding,
    )
    if corpus.declares_languages and None in (model.tokens.source_language, model.tokens.target_language):
        raise UsageError(
            f"The model {model.name} does not name its languages, and {corpus.format} files name theirs: give "
            "--source-language and --target-language."
        )
    return corpus
