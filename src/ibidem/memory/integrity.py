"""Checks of a memory: every byte of its files, its base model and its completeness; and the repair of a damaged one.

The repair drops damaged records of journals and damaged snapshots. `ibidem.model` is imported inside `check_identity`,
since it imports torch: opening and inspecting a memory must stay light.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import ibidem
from ibidem.errors import DamagedMemoryError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory.artefacts import check_artefact
from ibidem.memory.files import (
    Damage,
    DamagedFile,
    blocks_of_file,
    check_file,
    rename,
    replace_file,
    sync_directory,
    temporary_path,
    write_blocks,
    write_errors,
)
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SEGMENTS,
    commit_read_records,
    current_manifest,
    load_manifest,
    load_snapshot,
    put_manifest,
)
from ibidem.memory.journal import ENDS, Ends, Journal, encode_ends, journal_path, list_journals, read_ends
from ibidem.memory.lock import writer_lock
from ibidem.memory.manifest import utc_timestamp
from ibidem.memory.segment import Segment
from ibidem.memory.tail import check_age, read_stamp
from ibidem.text import same_language
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ibidem.memory.manifest import Manifest, SnapshotRecord
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
    before = read_ends(folder)
    end = before.of(journal.number)
    read = journal.read(end)[1]
    # A writer commits each record before it writes the next; more records mean an old file, or a running writer.
    if read.records > end.records + 1 and read_ends(folder) == before:
        raise DamagedFile(
            folder / ENDS, f"it is older than {journal.path.name}: there are {read.records} records, not {end.records}"
        )


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


def accept_loss(folder: Path) -> list[Damage]:
    """Repair a memory with damaged journals or snapshots, by dropping what is damaged.

    The changes before the first damaged one are kept. All later changes are dropped, in later journals too, since they
    may refer to lost pairs. A copy of every truncated file stays beside it with the ending `.damaged`. A snapshot is
    dropped if its manifest, or a journal that it needs, is damaged. Damaged segments and artefacts are left as they
    are.

    Args:
        folder: The folder of the memory.

    Returns:
        The files from which something was dropped.

    Raises:
        LockedMemoryError: Another writer holds the lock.
    """
    with writer_lock(folder), write_errors(folder):
        manifest = current_manifest(folder)
        ends = _readable_ends(folder)
        snapshots, lost = _sound_snapshots(folder, manifest, ends)
        kept = [manifest, *(load_snapshot(folder, record) for record in snapshots.values())]
        first = min(kept_manifest.journal for kept_manifest in kept)
        sound, cut = _sound_journals(folder, first, ends)
        for journal, damage in cut:
            lost.append(damage)
            _copy_damaged(journal)
        if ends is None:
            lost.append(Damage(ENDS, "it was rebuilt from the journals"))
        if lost or ends is None:
            for number in sound.journals:
                Journal(journal_path(folder, number)).sync()
            replace_file(folder / ENDS, encode_ends(sound))
            for journal, _ in cut:
                _truncate_journal(journal)
            put_manifest(
                folder,
                replace(
                    manifest,
                    generation=manifest.generation + 1,
                    updated=utc_timestamp(),
                    ibidem_version=ibidem.__version__,
                    snapshots=snapshots,
                ),
            )
        else:  # an older copy of the committed ends is no loss, and is updated
            journals = [_read_journal(folder, number, ends) for number in sound.journals]
            commit_read_records(folder, journals)
        return lost


def _readable_ends(folder: Path) -> Ends | None:
    try:
        return read_ends(folder)
    except DamagedMemoryError:
        return None


def _sound_snapshots(
    folder: Path, manifest: Manifest, ends: Ends | None
) -> tuple[dict[str, SnapshotRecord], list[Damage]]:
    """Return the snapshots with sound manifests and journals, and the damage of the others."""
    sound, lost = {}, []
    for name, record in manifest.snapshots.items():
        try:
            kept = load_snapshot(folder, record)
            for number in range(kept.journal, manifest.journal):
                _read_journal(folder, number, ends)
            sound[name] = record
        except DamagedFile as damage:
            lost.append(_to_damage(folder, damage))
    return sound, lost


def _sound_journals(folder: Path, first: int, ends: Ends | None) -> tuple[Ends, list[tuple[Journal, Damage]]]:
    """Return the ends of the sound records, and the journals to truncate there, each with its damage."""
    numbers = {int(path.stem) for path in list_journals(folder, first)}
    numbers |= {number for number in ends.journals if number >= first} if ends is not None else set()
    sound = Ends(first)
    cut: list[tuple[Journal, Damage]] = []
    for number in sorted(numbers):
        journal = Journal(journal_path(folder, number))
        try:
            if cut:
                raise DamagedFile(journal.path, "an earlier journal lost records")
            read = _read_journal(folder, number, ends)
        except DamagedFile as damage:
            read = journal if cut else journal.read_sound(None if ends is None else ends.of(number))
            cut.append((read, _to_damage(folder, damage)))
        if read.end:
            sound = sound.with_end(number, read.state)
    return sound, cut


def _read_journal(folder: Path, number: int, ends: Ends | None) -> Journal:
    return Journal(journal_path(folder, number)).read(None if ends is None else ends.of(number))[1]


def _to_damage(folder: Path, damage: DamagedFile) -> Damage:
    return Damage(damage.file.relative_to(folder).as_posix(), damage.reason)


def _copy_damaged(journal: Journal) -> None:
    """Keep a copy of a damaged journal."""
    copy = journal.path.with_name(journal.path.name + ".damaged")
    with contextlib.suppress(FileNotFoundError), journal.path.open("rb") as file:
        write_blocks(temporary_path(copy), blocks_of_file(file))
        rename(temporary_path(copy), copy)


def _truncate_journal(journal: Journal) -> None:
    """Truncate a journal to its sound records; delete it if there are none."""
    if journal.end:
        journal.truncate()
    elif journal.path.exists():
        journal.path.unlink()
        sync_directory(journal.path.parent)
