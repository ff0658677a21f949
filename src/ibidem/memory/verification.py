"""Checking every byte of a memory, and that what the bytes say holds together."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory.artefacts import check_artefact
from ibidem.memory.damage import Damage, DamagedFile
from ibidem.memory.digests import check_file
from ibidem.memory.ends import ENDS, Ends, read_ends
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SEGMENTS,
    current_manifest,
    listed_snapshots,
    load_manifest,
    load_snapshot,
)
from ibidem.memory.journal import Journal, journal_path, list_journals
from ibidem.memory.segment import Segment
from ibidem.memory.state import stamp_of
from ibidem.memory.tail import check_age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ibidem.memory.manifest import Manifest

_ROWS = 65536
_TRIES = 3


def verify(folder: Path, manifest: Manifest, progress: Callable[[int, int], None] | None = None) -> list[Damage]:
    """All damage of one generation and of the snapshots: a row for each file, in order; empty if all is well.

    `progress` is told the bytes read and the bytes in all. The lock is no part of a generation.
    """
    found: list[Damage] = []

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        except DamagedFile as damage:
            row = Damage(damage.file.relative_to(folder).as_posix(), damage.reason)
            # What a file says is checked after its bytes, and finds the damage of the bytes again.
            if row.file not in {other.file for other in found}:
                found.append(row)

    current = manifest
    with noted():
        current = load_manifest(folder / MANIFEST)
    if manifest.generation > 1:
        with noted():
            load_manifest(folder / PREVIOUS)
    generations = [manifest]
    for snapshot in listed_snapshots(folder, manifest).values():
        with noted():
            generations.append(load_snapshot(folder, snapshot))
    # Generations share what did not change between them.
    segments = {record.name: (record, kept) for kept in generations for record in kept.segments}
    artefacts = {record.file: (name, record) for kept in generations for name, record in kept.artefacts.items()}
    readers = [
        (Segment(folder / SEGMENTS / record.name, record, kept.layout, kept.identity.dimension), kept)
        for record, kept in segments.values()
    ]
    advance = _counter(folder, (segment for segment, _ in readers), artefacts, progress)
    for segment, kept in readers:
        with noted():
            for name, array in segment.records.items():
                with noted():
                    check_file(segment.file(name), array.bytes, array.sha256, array.crcs, advance=advance)
            for check in _CHECKS:
                with noted():
                    check(segment, kept)
    for name, artefact in artefacts.values():
        with noted():
            check_artefact(folder / ARTEFACTS, name, artefact, advance)
    with noted():
        ends = read_ends(folder, required=manifest.format > 3)
        with noted():
            check_age(folder, current.journal, ends)
        for check_journal in _journal_checks(folder, min(kept.journal for kept in generations), ends):
            with noted():
                check_journal()
    return found


def verify_folder(folder: Path, progress: Callable[[int, int], None] | None = None) -> tuple[Manifest, list[Damage]]:
    """Check every byte of the memory in a folder, be it so damaged that it cannot be opened; return its manifest too.

    Where damage is found and the generation was replaced meanwhile, all is checked again, up to three times: files of
    older generations are removed. Raises DamagedMemoryError where the manifest itself is damaged, and
    MemoryFolderError where there is no memory.
    """
    for left in reversed(range(_TRIES)):
        stamp = stamp_of(folder)
        manifest = current_manifest(folder)
        try:
            found = verify(folder, manifest, progress)
        except MemoryFolderError:
            if not left or stamp_of(folder) == stamp:
                raise
            continue
        if not found or stamp_of(folder) == stamp:
            break
    return manifest, found


def _journal_checks(folder: Path, first: int, ends: Ends | None) -> Iterator[Callable[[], None]]:
    """The checks of every journal from a number on: those that were committed, and those that are there."""
    found = {int(path.stem): path for path in list_journals(folder, first)}
    committed = () if ends is None else (number for number in ends.journals if number >= first)
    for number in sorted({*found, *committed}):
        yield partial(_check_journal, folder, Journal(journal_path(folder, number)), protected=ends is not None)


def _check_journal(folder: Path, journal: Journal, *, protected: bool) -> None:
    before = read_ends(folder, required=protected)
    end = None if before is None else before.of(journal.number)
    read = journal.read(end)[1]
    # A writer commits each record before it writes the next, unless it was at work while this was read.
    if end is not None and read.records > end.records + 1 and read_ends(folder) == before:
        raise DamagedFile(
            folder / ENDS, f"it is older than {journal.path.name}: {read.records} records are there, not {end.records}"
        )


def _check_keys(segment: Segment, _: Manifest) -> None:
    for name in {"keys", "compact"} & segment.expected.keys():
        keys = segment.array(name)
        for start in range(0, len(keys), _ROWS):
            if not np.isfinite(keys.read(start, min(start + _ROWS, len(keys)))).all():
                raise DamagedFile(segment.file(name), f"it holds NaN or infinity after row {start}")


def _check_log_probs(segment: Segment, _: Manifest) -> None:
    if not np.isfinite(segment.array("log_probs").all()).all():
        raise DamagedFile(segment.file("log_probs"), "it holds NaN or infinity")


def _check_values(segment: Segment, manifest: Manifest) -> None:
    _check_range(segment, "values", manifest.identity.vocabulary_size)


def _check_origins(segment: Segment, manifest: Manifest) -> None:
    _check_range(segment, "origins", len(manifest.origins))


def _check_range(segment: Segment, name: str, end: int) -> None:
    numbers = segment.array(name).all()
    if ((numbers < 0) | (numbers >= end)).any():
        raise DamagedFile(segment.file(name), f"it holds numbers outside 0 to {end - 1}")


def _check_offsets(segment: Segment, name: str, target: str) -> None:
    segment.checked_offsets(name, len(segment.array(target)))


def _check_pairs(segment: Segment, _: Manifest) -> None:
    for _pair in segment.pairs(0, segment.record.pairs):
        pass


_CHECKS: tuple[Callable[[Segment, Manifest], object], ...] = (
    _check_keys,
    lambda segment, _: segment.rows,  # which are checked when read
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
    """A function that adds the bytes it is given and reports the sum."""
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
