"""Artefacts: files that other packages store in a memory, such as a combiner or an index; and the lists of removals.

Pairs have ids, assigned in the order of arrival and never reused. Entries have serial numbers: their numbers in the
generation that `Manifest.numbering` names. The number of a pair or entry is its position among the remaining ones: its
id or serial number minus the number of removed ones below it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory.files import DamagedFile, blocks_of, blocks_of_file, check_file, rename, temporary_path, write_blocks
from ibidem.memory.generations import ARTEFACTS, current_manifest
from ibidem.memory.manifest import ARTEFACT_FILE, ARTEFACT_NAME, DTYPES, ArtefactRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ibidem.memory.manifest import Manifest

REMOVED_PAIRS = "removed_pairs"
REMOVED_ENTRIES = "removed_entries"

# The names of artefacts, and of the files below `artefacts/`.
INDEX_ARTEFACT = "index"
INDEX_PLAN_ARTEFACT = "index_plan"
_INDEX_PART = "index_part_"
COMPACTOR_ARTEFACT = "compactor"
SOURCE_PROJECTION_ARTEFACT = "source_projection"
FIXED_COMBINER_ARTEFACT = "combiner_fixed"
ADAPTIVE_COMBINER_ARTEFACT = "combiner_adaptive"
CONTEXTUAL_COMBINER_ARTEFACT = "combiner_contextual"
CONFIDENCE_ARTEFACT = "confidence"


def index_part_artefact(number: int) -> str:
    """Return the name of the artefact of a part of an index that is divided into shards.

    Args:
        number: The number of the part, from 1.
    """
    return f"{_INDEX_PART}{number}"


def is_index_artefact(name: str) -> bool:
    """Return whether an artefact belongs to the index: the whole one, or the plan or a part of a divided one.

    Args:
        name: The name of the artefact.
    """
    return name in (INDEX_ARTEFACT, INDEX_PLAN_ARTEFACT) or name.startswith(_INDEX_PART)


@dataclass(frozen=True)
class Artefact:
    """A verified file that another package stored in a memory.

    Attributes:
        path: The file.
        info: The JSON object that was stored with it.
    """

    path: Path
    info: Mapping[str, Any]


def write_artefact(
    folder: Path, name: str, generation: int, extension: str, payload: bytes | Path, info: Mapping[str, Any]
) -> ArtefactRecord:
    """Write an artefact durably as folder/NAME-GENERATION.EXTENSION.

    Args:
        folder: The folder of the artefacts.
        name: The name of the artefact: a-z, 0-9 and _.
        generation: The generation that the artefact belongs to.
        extension: The ending of the file: a-z and 0-9.
        payload: The content, or a file to copy.
        info: A JSON object to store with it.

    Returns:
        The record for the manifest.

    Raises:
        UsageError: Invalid name, extension or info, or the file to copy does not exist.
    """
    if not re.fullmatch(ARTEFACT_NAME, name) or name in DTYPES:
        raise UsageError(
            f"{name!r} is not a valid name for an artefact: use a-z, 0-9 and _, and none of {', '.join(DTYPES)}"
        )
    path = folder / f"{name}-{generation:06d}.{extension.removeprefix('.')}"
    if not re.fullmatch(ARTEFACT_FILE, path.name):
        raise UsageError(f"{extension!r} is not a valid extension for an artefact: use a-z and 0-9")
    notes = json_copy(info, f"the info of artefact {name!r}")
    temporary = temporary_path(path)
    if isinstance(payload, Path):
        if not payload.is_file():
            raise UsageError(f"artefact {name!r} cannot be copied from {payload}: there is no file")
        with payload.open("rb") as file:
            digest = write_blocks(temporary, blocks_of_file(file))
    else:
        digest = write_blocks(temporary, blocks_of(np.frombuffer(payload, np.uint8)))
    rename(temporary, path)
    return ArtefactRecord(path.name, digest.bytes, digest.sha256, notes)


def check_artefact(
    folder: Path, name: str, record: ArtefactRecord, advance: Callable[[int], None] | None = None
) -> None:
    """Read the whole file of an artefact and compare it with its record.

    Args:
        folder: The folder of the artefacts.
        name: The name of the artefact for the message.
        record: The record of the manifest.
        advance: A function that is called with the number of bytes of each block that was read.

    Raises:
        DamagedMemoryError: The file is missing or changed.
    """
    path = folder / record.file
    check_file(
        path,
        record.bytes,
        record.sha256,
        advance=advance,
        remedy=f"run `ibidem repair`, with --from if there is a backup, or make the {name} again",
        name=f"artefact {name!r} ({path})",
    )


def open_artefact(folder: Path, manifest: Manifest, name: str, verified: set[str]) -> Artefact | None:
    """Return an artefact of a generation; its file is verified once.

    Args:
        folder: The folder of the memory.
        manifest: The generation.
        name: The name of the artefact.
        verified: The files that were verified before; the function adds to them.

    Returns:
        The artefact; None if the generation has none of this name.

    Raises:
        DamagedMemoryError: The file is missing or changed.
        MemoryFolderError: A newer generation was committed, and the file was deleted.
    """
    record = manifest.artefacts.get(name)
    if record is None:
        return None
    path = folder / ARTEFACTS / record.file
    if record.file not in verified:
        try:
            check_artefact(folder / ARTEFACTS, name, record)
        except DamagedFile as damage:
            newest = current_manifest(folder).generation
            if newest == manifest.generation or path.exists():
                raise
            raise MemoryFolderError(
                f"artefact {name!r} of generation {manifest.generation} of {folder} was deleted, since generation "
                f"{newest} was committed meanwhile: refresh the memory"
            ) from damage
        verified.add(record.file)
    return Artefact(path, record.info)


def json_copy(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Copy an object through JSON.

    Args:
        value: The object.
        what: The name of the object for the message.

    Raises:
        UsageError: The object contains a value that JSON cannot represent.
    """
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be written as JSON: {error}") from error
    copy: dict[str, Any] = json.loads(text)
    return copy


def read_removed(folder: Path, manifest: Manifest, name: str) -> NDArray[np.int64]:
    """Read the ids of removed pairs or the serial numbers of removed entries.

    Args:
        folder: The folder of the memory.
        manifest: The generation.
        name: `REMOVED_PAIRS` or `REMOVED_ENTRIES`.

    Returns:
        [n] numbers, in the order of their removal.

    Raises:
        DamagedMemoryError: The file is missing, changed or invalid.
    """
    record = manifest.artefacts.get(name)
    if record is None:
        return np.empty(0, np.int64)
    check_artefact(folder / ARTEFACTS, name, record)
    found = np.fromfile(folder / ARTEFACTS / record.file, "<i8").astype(np.int64)
    if found.size * 8 != record.bytes or len(np.unique(found)) < found.size or (found < 0).any():
        raise DamagedFile(folder / ARTEFACTS / record.file, "it does not contain distinct non-negative numbers")
    return found


def numbers_among(serials: NDArray[np.int64], removed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert serial numbers to numbers.

    Args:
        serials: [n] serial numbers of entries that were not removed.
        removed: [m] serial numbers of removed entries, ascending.

    Returns:
        [n] numbers.

    Examples:
        >>> numbers_among(np.array([0, 3, 5]), removed=np.array([1, 4]))
        array([0, 2, 3])
    """
    return serials - np.searchsorted(removed, serials)


def serials_of(numbers: NDArray[np.int64], removed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert numbers to serial numbers.

    Args:
        numbers: [n] numbers of entries.
        removed: [m] serial numbers of removed entries, ascending.

    Returns:
        [n] serial numbers.

    Examples:
        >>> serials_of(np.array([0, 2, 3]), removed=np.array([1, 4]))
        array([0, 3, 5])
    """
    return numbers + np.searchsorted(removed - np.arange(len(removed)), numbers, side="right")
