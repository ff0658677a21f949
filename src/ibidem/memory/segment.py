"""A sealed segment: a folder of arrays that is written once, at once, and never changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.memory.arrays import ArrayRecord, StoredArray
from ibidem.memory.damage import DamagedFile, unreadable
from ibidem.memory.digests import BLOCK_BYTES, blocks_of
from ibidem.memory.fields import parse
from ibidem.memory.files import remove, rename, sync_directory, temporary, write_blocks
from ibidem.memory.manifest import SegmentRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.pairs import SegmentData

RECORD = "segment.json"

DTYPES: Mapping[str, str] = {
    "keys": "<f2",
    "values": "<i4",
    "log_probs": "<f4",
    "offsets": "<i8",
    "sources": "|u1",
    "source_offsets": "<i8",
    "targets": "|u1",
    "target_offsets": "<i8",
    "origins": "<i4",
    "locations": "<i8",
}
_CHUNK = 1024


def write_segment(folder: Path, data: SegmentData, origins: Mapping[str, int]) -> SegmentRecord:
    """Write a segment durably under its name; `origins` gives each origin's number.

    The same data give the same bytes. A manifest that holds the record makes the segment part of the memory.
    """
    sources, source_offsets = _blob(data.sources)
    targets, target_offsets = _blob(data.targets)
    arrays: dict[str, NDArray[Any]] = {
        "keys": data.keys,
        "values": data.values,
        "log_probs": data.log_probs,
        "offsets": data.offsets(),
        "sources": sources,
        "source_offsets": source_offsets,
        "targets": targets,
        "target_offsets": target_offsets,
        "origins": np.array([origins[name] for name in data.origins], np.int32),
        "locations": np.array(data.locations, np.int64),
    }
    beside = temporary(folder)
    for left_over in (beside, folder):  # of an earlier try, whose rename may even have come through
        remove(left_over)
    beside.mkdir()
    records = {}
    for name, dtype in DTYPES.items():
        array = np.ascontiguousarray(arrays[name], dtype)
        digest = write_blocks(beside / f"{name}.bin", blocks_of(array.reshape(-1).view(np.uint8)))
        records[name] = asdict(ArrayRecord(dtype, array.shape, digest.bytes, digest.sha256, digest.crcs))
    document = {"entries": data.entries, "pairs": data.pairs, "block_bytes": BLOCK_BYTES, "arrays": records}
    content = json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
    sha256 = write_blocks(beside / RECORD, blocks_of(np.frombuffer(content, np.uint8))).sha256
    sync_directory(beside)
    rename(beside, folder)
    return SegmentRecord(folder.name, data.entries, data.pairs, sha256)


class Segment:
    """The reader of a sealed segment; files are opened when first needed. Raises DamagedMemoryError."""

    def __init__(self, folder: Path, record: SegmentRecord, dimension: int) -> None:
        self.folder = folder
        self.record = record
        self._dimension = dimension
        self._arrays: dict[str, StoredArray] = {}

    @cached_property
    def records(self) -> Mapping[str, ArrayRecord]:
        """What segment.json says of every array, checked against the manifest."""
        file = self.folder / RECORD
        try:
            content = file.read_bytes()
        except OSError as error:
            raise unreadable(file, error) from error
        if hashlib.sha256(content).hexdigest() != self.record.sha256:
            raise DamagedFile(file, "its sha256 is not the one in the manifest")
        fields = parse(content, file)
        entries, pairs = self.record.entries, self.record.pairs
        for name, expected in (("entries", entries), ("pairs", pairs), ("block_bytes", BLOCK_BYTES)):
            if fields.integer(name) != expected:
                raise fields.fault(name, f"{expected}, as the manifest implies")
        shapes: dict[str, tuple[int | None, ...]] = {
            "keys": (entries, self._dimension),
            "values": (entries,),
            "log_probs": (entries,),
            "offsets": (pairs + 1,),
            "sources": (None,),
            "source_offsets": (pairs + 1,),
            "targets": (None,),
            "target_offsets": (pairs + 1,),
            "origins": (pairs,),
            "locations": (pairs,),
        }
        arrays = fields.fields("arrays")
        return {
            name: ArrayRecord.from_fields(arrays.fields(name), dtype, shapes[name]) for name, dtype in DTYPES.items()
        }

    def array(self, name: str) -> StoredArray:
        """One of the arrays of DTYPES."""
        if name not in self._arrays:
            self._arrays[name] = StoredArray(self.file(name), self.records[name])
        return self._arrays[name]

    def file(self, name: str) -> Path:
        """The file of an array."""
        return self.folder / f"{name}.bin"

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] where the entries of each pair begin."""
        return self.checked_offsets("offsets", self.record.entries)

    @cached_property
    def source_offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] where the bytes of each source begin."""
        return self.checked_offsets("source_offsets", self.records["sources"].bytes)

    @cached_property
    def target_offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] where the bytes of each target begin."""
        return self.checked_offsets("target_offsets", self.records["targets"].bytes)

    def pairs(self, start: int, stop: int) -> Iterator[tuple[str, str, int, int, int, int]]:
        """Source, target, origin number, location, first entry and the one after the last, of each pair."""
        for first in range(start, stop, _CHUNK):
            last = min(first + _CHUNK, stop)
            entries = self.offsets[first : last + 1].tolist()
            yield from zip(
                self._texts("sources", self.source_offsets, first, last),
                self._texts("targets", self.target_offsets, first, last),
                self.array("origins").read(first, last).tolist(),
                self.array("locations").read(first, last).tolist(),
                entries[:-1],
                entries[1:],
                strict=True,
            )

    def locate(self, entry: int) -> tuple[int, int]:
        """The pair of an entry, and its position there."""
        pair = int(np.searchsorted(self.offsets, entry, side="right")) - 1
        return pair, entry - int(self.offsets[pair])

    def checked_offsets(self, name: str, end: int) -> NDArray[np.int64]:
        """[pairs + 1] an array of offsets, which must rise from 0 to `end`."""
        offsets = self.array(name).all()
        if offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
            raise DamagedFile(self.file(name), f"its offsets do not rise from 0 to {end}")
        return offsets

    def _texts(self, name: str, offsets: NDArray[np.int64], start: int, stop: int) -> list[str]:
        bounds = offsets[start : stop + 1].tolist()
        blob = self.array(name).read(bounds[0], bounds[-1]).tobytes()
        try:
            return [blob[a - bounds[0] : b - bounds[0]].decode("utf-8") for a, b in pairwise(bounds)]
        except UnicodeDecodeError as error:
            raise DamagedFile(self.file(name), f"a text of pairs {start} to {stop - 1} is not UTF-8") from error


def _blob(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    encoded = [text.encode("utf-8") for text in texts]
    lengths = np.fromiter((len(text) for text in encoded), np.int64, len(encoded))
    return np.frombuffer(b"".join(encoded), np.uint8), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
