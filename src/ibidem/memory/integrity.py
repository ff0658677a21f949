"""Checks of a memory: every byte of its files, its base model and its completeness.

`ibidem.model` is imported inside `check_identity`, since it imports torch: opening and inspecting a memory must stay
light.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MemoryFolderError, MismatchError, UsageError
from ibidem.memory.artefacts import check_artefact
from ibidem.memory.files import (
    Damage,
    DamagedFile,
    check_file,
)
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SEGMENTS,
    check_newest,
    current_manifest,
    load_manifest,
    load_snapshot,
)
from ibidem.memory.journal import Journal, journal_path, list_journals, read_ends
from ibidem.memory.segment import Segment
from ibidem.memory.tail import check_age, check_ends, read_stamp
from ibidem.text import same_language
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ibidem.memory.journal import Ends
    from ibidem.memory.manifest import Manifest
    from ibidem.memory.memory import Memory
    from ibidem.model import BaseModel


_ROWS = 65536
_ATTEMPTS = 3


def check_identity(memory: Memory, model: BaseModel) -> None:
    """Check that a memory was learnt with this model, tokenizer and languages; otherwise its keys are meaningless.

    Args:
        memory: The memory.
        model: The model that is to translate with it.

    Raises:
        MismatchError: If one of them differs; the message names it.
    """
    from ibidem.model import LanguagePair

    identity = memory.identity
    stored_pair = LanguagePair(identity.source_language, identity.target_language)
    given_pair = LanguagePair(model.tokens.source_language, model.tokens.target_language)
    for known, wanted in zip(stored_pair, given_pair, strict=True):
        if known is not None and wanted is not None and not same_language(known, wanted):
            raise MismatchError(
                f"{memory.path} holds translations {stored_pair}, but the model '{model.name}' is to translate "
                f"{given_pair}: give --source-language and --target-language as the memory has them, or another memory."
            )
    checks = (
        ("dimension", identity.dimension, model.dimension),
        ("vocabulary size", identity.vocabulary_size, model.vocabulary_size),
        ("tokenizer", identity.tokenizer_fingerprint[:12], model.tokenizer_fingerprint[:12]),
        ("model", identity.model_fingerprint[:12], model.fingerprint[:12]),
    )
    for what, stored, given in checks:
        if stored != given and identity.name == model.name:
            raise MismatchError(
                f"{memory.path} was learnt with another state of '{model.name}' ({what} {stored}, now {given}): the "
                "model has changed, or the source prefix or a language differs. Give the memory's source prefix with "
                f"{describe_option('--source-prefix', 'TEXT')} and its languages, or learn it again."
            )
        if stored != given:
            raise MismatchError(
                f"{memory.path} was learnt with the model '{identity.name}' ({what} {stored}), not with "
                f"'{model.name}' ({what} {given}): use --model {identity.name}, or learn the memory again."
            )


def check_complete(memory: Memory) -> None:
    """Check that the extraction of a memory was finished.

    Args:
        memory: The memory.

    Raises:
        UsageError: If it was interrupted: tuning or translating with a part of the memory would mislead.
    """
    if not memory.complete:
        raise UsageError(f"{memory.path} is unfinished: run the `ibidem learn` or `extract` that began it again.")


def verify(folder: Path, manifest: Manifest, progress: Callable[[int, int], None] | None = None) -> list[Damage]:
    """Check every byte of a generation and of the snapshots.

    Args:
        folder: The folder of the memory.
        manifest: The generation.
        progress: A function that is called with the bytes read so far and the total bytes.

    Returns:
        The damaged files; empty if there are none.
    """
    found: list[Damage] = []

    @contextlib.contextmanager
    def collecting_damage() -> Iterator[None]:
        try:
            yield
        except DamagedFile as damage:
            row = Damage(damage.file.relative_to(folder).as_posix(), damage.reason)
            # The content of a file is checked after its bytes, which reports damaged bytes a second time.
            if row.file not in {other.file for other in found}:
                found.append(row)

    current = manifest
    with collecting_damage():
        current = load_manifest(folder / MANIFEST)
        check_newest(folder, current)
    if manifest.generation > 1:
        with collecting_damage():
            load_manifest(folder / PREVIOUS)
    generations = [manifest]
    for snapshot in manifest.snapshots.values():
        with collecting_damage():
            generations.append(load_snapshot(folder, snapshot))
    # Generations share the files that did not change between them.
    segments = {record.name: (record, kept) for kept in generations for record in kept.segments}
    artefacts = {record.file: (name, record) for kept in generations for name, record in kept.artefacts.items()}
    readers = [
        (Segment(folder / SEGMENTS / record.name, record, kept.layout, kept.identity.dimension), kept)
        for record, kept in segments.values()
    ]
    advance = _counter(folder, (segment for segment, _ in readers), artefacts, progress)
    for segment, kept in readers:
        with collecting_damage():
            for name, array in segment.records.items():
                with collecting_damage():
                    check_file(segment.file(name), array.bytes, array.sha256, array.crcs, advance=advance)
            for check in _CHECKS:
                with collecting_damage():
                    check(segment, kept)
    for name, artefact in artefacts.values():
        with collecting_damage():
            check_artefact(folder / ARTEFACTS, name, artefact, advance)
    with collecting_damage():
        ends = read_ends(folder)
        with collecting_damage():
            check_age(folder, current.journal, ends)
        for check_journal in _journal_checks(folder, min(kept.journal for kept in generations), ends):
            with collecting_damage():
                check_journal()
    return found


def check_segment(segment: Segment, manifest: Manifest) -> None:
    """Check every byte of a segment, and its content.

    Args:
        segment: The reader of the segment.
        manifest: A generation with its model and its origins; the segment need not be part of it.

    Raises:
        DamagedFile: A file is missing or changed, or its content is invalid.
    """
    for name, array in segment.records.items():
        check_file(segment.file(name), array.bytes, array.sha256, array.crcs)
    for check in _CHECKS:
        check(segment, manifest)


def verify_folder(folder: Path, progress: Callable[[int, int], None] | None = None) -> tuple[Manifest, list[Damage]]:
    """Check every byte of the memory in a folder, even of one that cannot be opened.

    If damage is found while another process commits a generation, the check is repeated, up to three times, since the
    files of older generations are deleted.

    Args:
        folder: The folder of the memory.
        progress: A function that is called with the bytes read so far and the total bytes.

    Returns:
        The manifest, and the damaged files.

    Raises:
        DamagedMemoryError: The manifest itself is damaged.
        MemoryFolderError: There is no memory.
    """
    for left in reversed(range(_ATTEMPTS)):
        stamp = read_stamp(folder)
        manifest = current_manifest(folder)
        try:
            found = verify(folder, manifest, progress)
        except MemoryFolderError:
            if not left or read_stamp(folder) == stamp:
                raise
            continue
        if not found or read_stamp(folder) == stamp:
            break
    return manifest, found


def _journal_checks(folder: Path, first: int, ends: Ends) -> Iterator[Callable[[], None]]:
    """Yield a check for each journal from a number on: the committed ones and those in the folder."""
    found = {int(path.stem): path for path in list_journals(folder, first)}
    committed = (number for number in ends.journals if number >= first)
    for number in sorted({*found, *committed}):
        yield partial(_check_journal, folder, Journal(journal_path(folder, number)))


def _check_journal(folder: Path, journal: Journal) -> None:
    ends = read_ends(folder)
    journal.read(ends.of(journal.number))
    check_ends(folder, journal, ends)


def _check_keys(segment: Segment, _: Manifest) -> None:
    if "keys" not in segment.expected:
        return
    keys = segment.array("keys")
    for start in range(0, len(keys), _ROWS):
        if not np.isfinite(keys.read(start, min(start + _ROWS, len(keys)))).all():
            raise DamagedFile(segment.file("keys"), f"it contains NaN or infinity after row {start}")


def _check_log_probs(segment: Segment, _: Manifest) -> None:
    if not np.isfinite(segment.array("log_probs").all()).all():
        raise DamagedFile(segment.file("log_probs"), "it contains NaN or infinity")


def _check_values(segment: Segment, manifest: Manifest) -> None:
    _check_range(segment, "values", manifest.identity.vocabulary_size)


def _check_origins(segment: Segment, manifest: Manifest) -> None:
    _check_range(segment, "origins", len(manifest.origins))


def _check_range(segment: Segment, name: str, end: int) -> None:
    numbers = segment.array(name).all()
    if ((numbers < 0) | (numbers >= end)).any():
        raise DamagedFile(segment.file(name), f"it contains numbers outside 0 to {end - 1}")


def _check_offsets(segment: Segment, name: str, target: str) -> None:
    segment.checked_offsets(name, len(segment.array(target)))


def _check_pairs(segment: Segment, _: Manifest) -> None:
    for _pair in segment.pairs(0, segment.record.pairs):
        pass


_CHECKS: tuple[Callable[[Segment, Manifest], object], ...] = (
    _check_keys,
    lambda segment, _: segment.rows,  # the property checks them
    _check_values,
    _check_log_probs,
    _check_origins,
    lambda segment, _: _check_offsets(segment, "offsets", "values"),
    lambda segment, _: _check_offsets(segment, "source_offsets", "sources"),
    lambda segment, _: _check_offsets(segment, "target_offsets", "targets"),
    _check_pairs,
)


def _counter(
    folder: Path, segments: Iterable[Segment], artefacts: Iterable[str], progress: Callable[[int, int], None] | None
) -> Callable[[int], None]:
    """Return a function that adds up bytes and reports the sum."""
    files = [segment.file(name) for segment in segments for name in segment.expected]
    files += [folder / ARTEFACTS / file for file in artefacts]
    total = sum(file.stat().st_size for file in files if file.is_file())
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return advance
