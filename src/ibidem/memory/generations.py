"""The manifests on disk: the current generation, the one before it, and what belongs to neither."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory.damage import DamagedFile, unreadable
from ibidem.memory.fields import parse
from ibidem.memory.files import TEMPORARY, make_directory, remove, replace_file, sync_directory
from ibidem.memory.journal import JOURNALS, list_journals
from ibidem.memory.lock import LOCK
from ibidem.memory.manifest import ARTEFACT_FILE, FORMAT, SEGMENT_NAME, Manifest, newer_format

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
PREVIOUS = "manifest.previous.json"
SEGMENTS = "segments"
ARTEFACTS = "artefacts"
SNAPSHOTS = "snapshots"
WORK = "work"

# The checksum stands first and at a fixed place, so that it covers every byte after itself.
_SEAL = b'{\n "checksum": "'
_SEALED_FROM = len(_SEAL) + 64


def seal(manifest: Manifest) -> bytes:
    """The bytes of a manifest, with the sha256 of all that follows it in the first field."""
    try:
        text = json.dumps({"checksum": "0" * 64, **manifest.to_json()}, ensure_ascii=False, indent=1, allow_nan=False)
        content = text.encode("utf-8") + b"\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"the manifest cannot be written as JSON: {error}") from error
    body = content[_SEALED_FROM:]
    return _SEAL + hashlib.sha256(body).hexdigest().encode("ascii") + body


def unseal(content: bytes, file: Path) -> Manifest:
    """The manifest in these bytes of `file`; raises DamagedMemoryError, or MemoryFolderError if newer."""
    fields = parse(content, file)
    sealed, body = content[:_SEALED_FROM], content[_SEALED_FROM:]
    if sealed != _SEAL + hashlib.sha256(body).hexdigest().encode("ascii"):
        number = fields.integer("format", 1)
        if number > FORMAT:
            raise DamagedFile(file, f"its checksum does not match, or {newer_format('it', number)}")
        raise DamagedFile(file, "its checksum does not match its content")
    return Manifest.from_json(fields)


def load_manifest(file: Path) -> Manifest:
    """Read one manifest file and check it wholly."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error
    return unseal(content, file)


def current_manifest(folder: Path) -> Manifest:
    """The current generation of a memory.

    Raises MemoryFolderError if the folder is no memory, and DamagedMemoryError, with the way back, if its
    manifest is missing or damaged.
    """
    file = folder / MANIFEST
    if not any((folder / name).exists() for name in (MANIFEST, PREVIOUS, SEGMENTS)):
        raise MemoryFolderError(f"there is no memory at {folder}: check the path, or make one with `ibidem learn`")
    try:
        return load_manifest(file)
    except DamagedFile as damage:
        try:
            previous = load_manifest(folder / PREVIOUS)
        except MemoryFolderError:
            raise damage from None
        back = f"copy {PREVIOUS} over {MANIFEST} to go back to generation {previous.generation}"
        remedy = f"{back}, or restore it from a copy"
        raise DamagedFile(file, damage.reason, remedy) from damage


def put_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the current generation, and the current one the previous."""
    content = seal(manifest)
    file = folder / MANIFEST
    if file.exists():
        replace_file(folder / PREVIOUS, file.read_bytes())
    replace_file(file, content)


def check_vacant(folder: Path) -> None:
    """Refuse a folder that holds anything but what a `create` that was killed leaves behind."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise MemoryFolderError(f"{folder} is a file: give the path of a new folder")
    for path in folder.iterdir():
        left_over = path.name == LOCK or path.name.startswith(TEMPORARY)
        empty = path.name in (SEGMENTS, ARTEFACTS, JOURNALS) and path.is_dir() and not any(path.iterdir())
        if not left_over and not empty:
            raise MemoryFolderError(f"{folder} is not empty ({path.name} is there): give the path of a new folder")


def snapshots(folder: Path) -> dict[str, Path]:
    """The manifests of generations that were kept by name."""
    return {file.stem: file for file in sorted((folder / SNAPSHOTS).glob("[a-z]*.json"))}


def keep_snapshot(folder: Path, name: str) -> None:
    """Keep the current generation by name, in place of an earlier one of that name, until it is forgotten."""
    make_directory(folder / SNAPSHOTS)
    replace_file(folder / SNAPSHOTS / f"{name}.json", (folder / MANIFEST).read_bytes())


def forget(files: list[Path]) -> None:
    """Remove the manifests of snapshots."""
    for file in files:
        file.unlink(missing_ok=True)
        sync_directory(file.parent)


def sweep(folder: Path) -> None:
    """Remove temporary files, and segments, artefacts and journals that no manifest needs; only the writer may.

    What is kept is read from disk, not from the writer's state: after a failed commit only the disk knows.
    """
    for place in (folder, folder / SEGMENTS, folder / ARTEFACTS, folder / SNAPSHOTS):
        for path in place.glob(TEMPORARY + "*"):
            remove(path)
    manifests = [folder / MANIFEST, folder / PREVIOUS, *snapshots(folder).values()]
    try:
        kept = [load_manifest(file) for file in manifests if file.name == MANIFEST or file.exists()]
    except DamagedMemoryError:
        return  # what a damaged manifest names is unknown, and may be wanted for its repair
    segments = {segment.name for manifest in kept for segment in manifest.segments}
    artefacts = {artefact.file for manifest in kept for artefact in manifest.artefacts.values()}
    _remove_others(folder / SEGMENTS, SEGMENT_NAME, segments)
    _remove_others(folder / ARTEFACTS, ARTEFACT_FILE, artefacts)
    first = min(manifest.journal for manifest in kept)
    for path in set(list_journals(folder, 0)) - set(list_journals(folder, first)):
        remove(path)


def _remove_others(place: Path, pattern: str, kept: set[str]) -> None:
    for path in place.glob("*"):
        if path.name not in kept and re.fullmatch(pattern, path.name):
            remove(path)
