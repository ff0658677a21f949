"""What was taken out of a memory one by one, so that ids, and the numbers that an index knows, keep their meaning.

Pairs have ids, given in the order in which they came and never given again; entries have serial numbers, which are
the numbers that they had in the generation that `Manifest.numbering` names, or would have had. A number is the place
among what is left: an id or a serial number less the removed ones below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ibidem.memory.artefacts import check_artefact
from ibidem.memory.damage import DamagedFile
from ibidem.memory.generations import ARTEFACTS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.manifest import Manifest

REMOVED_PAIRS = "removed_pairs"
REMOVED_ENTRIES = "removed_entries"


def read_removed(folder: Path, manifest: Manifest, name: str) -> NDArray[np.int64]:
    """The ids of removed pairs, or the serial numbers of removed entries, in the order in which they were removed."""
    record = manifest.artefacts.get(name)
    if record is None:
        return np.empty(0, np.int64)
    check_artefact(folder / ARTEFACTS, name, record)
    found = np.fromfile(folder / ARTEFACTS / record.file, "<i8").astype(np.int64)
    if found.size * 8 != record.bytes or len(np.unique(found)) < found.size or (found < 0).any():
        raise DamagedFile(folder / ARTEFACTS / record.file, "it does not hold numbers, each once")
    return found


def numbers_among(serials: NDArray[np.int64], removed: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of what has these serial numbers; `removed` [n] rises, and none of them is asked for."""
    return serials - np.searchsorted(removed, serials)


def serials_of(numbers: NDArray[np.int64], removed: NDArray[np.int64]) -> NDArray[np.int64]:
    """The serial numbers of what has these numbers; `removed` [n] rises."""
    return numbers + np.searchsorted(removed - np.arange(len(removed)), numbers, side="right")
