"""Sealed segments: folders of raw little-endian arrays that are written once, mapped, and verified block by block."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory.files import (
    BLOCK_BYTES,
    DamagedFile,
    blocks_of,
    describe_blocks,
    describe_size,
    link_file,
    read_error,
    remove_file,
    rename,
    sync_directory,
    temporary_path,
    write_blocks,
)
from ibidem.memory.generations import current_manifest
from ibidem.memory.json_document import parse
from ibidem.memory.manifest import DTYPES, ENTRY_ARRAYS, WIDE_DTYPES, Counts, Layout, SegmentRecord
from ibidem.memory.pairs import SegmentContent, rows_of_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.json_document import Fields

RECORD = "segment.json"
_CHUNK = 1024
_FEW = 16


@dataclass(frozen=True)
class ArrayRecord:
    """The record of an array in segment.json.

    Attributes:
        dtype: The dtype in numpy's notation, little-endian.
        shape: The shape.
        bytes: The size of the file.
        sha256: The sha256 of the file.
        crcs: The crc32 of each block of BLOCK_BYTES.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str
    crcs: tuple[int, ...]

    @classmethod
    def from_fields(cls, fields: Fields, dtypes: Sequence[str], shape: tuple[int | None, ...]) -> ArrayRecord:
        """Read a record and compare it with the dtype and shape that the manifest implies.

        Args:
            fields: The JSON object.
            dtypes: The possible dtypes in numpy's notation.
            shape: The shape; None stands for any length.

        Raises:
            DamagedFile: A field is missing or differs.
        """
        found = fields.integers("shape")
        if len(found) != len(shape) or any(b not in (a, None) for a, b in zip(found, shape, strict=True)):
            raise fields.field_error("shape", f"the shape {list(shape)} that the manifest implies")
        if (dtype := fields.text("dtype")) not in dtypes:
            raise fields.field_error("dtype", " or ".join(map(repr, dtypes)))
        size = prod(found) * np.dtype(dtype).itemsize
        if fields.integer("bytes") != size:
            raise fields.field_error("bytes", f"{size}, as its shape implies")
        crcs = fields.integers("crcs", most=0xFFFFFFFF)
        if len(crcs) != -(-size // BLOCK_BYTES):
            raise fields.field_error("crcs", f"a list of {-(-size // BLOCK_BYTES)} whole numbers")
        return cls(dtype, found, size, fields.sha256("sha256"), crcs)


class StoredArray:
    """A read-only array on disk; the crc32 of a block is checked when it is read for the first time.

    The constructor and the methods raise DamagedMemoryError if the file is missing, truncated or changed.
    """

    def __init__(self, path: Path, record: ArrayRecord) -> None:
        """Open the file and check its size.

        Args:
            path: The file.
            record: The record of the array.
        """
        self._path = path
        self._crcs = record.crcs
        self._content = _content(path, record.bytes)
        self._rows: NDArray[Any] = self._content.view(record.dtype).reshape(record.shape)
        self._row_bytes = self._rows.dtype.itemsize * prod(record.shape[1:])
        self._verified = np.zeros(len(record.crcs), bool)
        self._all_verified = not record.crcs

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return consecutive rows, verified, without a copy.

        Args:
            start: The first row.
            stop: The row after the last.

        Returns:
            [stop - start, ...], read-only.
        """
        if not self._all_verified and stop > start:
            first, last = start * self._row_bytes, stop * self._row_bytes - 1
            self._verify(np.arange(first // BLOCK_BYTES, last // BLOCK_BYTES + 1))
        return self._rows[start:stop]

    def all(self) -> NDArray[Any]:
        """Return all rows, verified, without a copy."""
        return self.read(0, len(self))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of given rows, verified.

        Args:
            rows: [n] numbers of rows, in any order.

        Returns:
            [n, ...].
        """
        if not self._all_verified and rows.size:
            first = rows * self._row_bytes // BLOCK_BYTES
            last = ((rows + 1) * self._row_bytes - 1) // BLOCK_BYTES
            touched = np.zeros(len(self._crcs), bool)
            for step in range(int((last - first).max()) + 1):
                touched[np.minimum(first + step, last)] = True
            self._verify(np.flatnonzero(touched))
        found: NDArray[Any] = self._rows[rows]
        return found

    def _verify(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks[~self._verified[blocks]].tolist():
            content = self._content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES].data
            if zlib.crc32(content) != self._crcs[block]:
                raise DamagedFile(self._path, describe_blocks([block]))
            self._verified[block] = True
        self._all_verified = bool(self._verified.all())


def _content(path: Path, size: int) -> NDArray[np.uint8]:
    """Return the bytes of a file; its size is checked before it is mapped or read."""
    try:
        with path.open("rb") as file:
            if (found := os.fstat(file.fileno()).st_size) != size:
                raise DamagedFile(path, describe_size(found, size))
            if size > BLOCK_BYTES:
                return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
            # A mapping keeps a file descriptor open, and thousands of small segments would exceed the limit.
            content = file.read(size)
    except (OSError, ValueError) as error:  # mmap raises ValueError if the file shrank meanwhile
        raise read_error(path, error if isinstance(error, OSError) else OSError(0, str(error))) from error
    if len(content) != size:
        raise DamagedFile(path, describe_size(len(content), size))
    return np.frombuffer(content, np.uint8)


def write_segment(folder: Path, content: SegmentContent) -> SegmentRecord:
    """Write a segment durably; the same content gives the same bytes.

    A manifest that contains the record makes the segment part of the memory.

    Args:
        folder: The folder of the segment.
        content: The sizes and arrays.

    Returns:
        The record for the manifest.
    """
    return _seal(folder, content.counts, content.arrays, {})


def derive_segment(
    folder: Path, source: Segment, layout: Layout, changed: Mapping[str, NDArray[Any]], entries: int | None = None
) -> SegmentRecord:
    """Write a segment with another layout or fewer entries, durably; unchanged arrays are linked.

    Args:
        folder: The folder of the new segment.
        source: The segment that it is derived from.
        layout: The new layout.
        changed: The arrays that are new or changed, by name.
        entries: The new number of entries; None keeps it.

    Returns:
        The record for the manifest.
    """
    counts = replace(source.record.counts, entries=source.record.entries if entries is None else entries)
    kept = [name for name in layout.shapes(counts, source.dimension) if name not in changed]
    return _seal(folder, counts, changed, {name: (source.file(name), source.records[name]) for name in kept})


def _seal(
    folder: Path,
    counts: Counts,
    arrays: Mapping[str, NDArray[Any]],
    linked: Mapping[str, tuple[Path, ArrayRecord]],
) -> SegmentRecord:
    temporary = temporary_path(folder)
    for left_over in (temporary, folder):  # of an earlier attempt, whose rename may have succeeded
        remove_file(left_over)
    temporary.mkdir()
    records = {}
    for name in DTYPES:
        if name in linked:
            file, record = linked[name]
            link_file(file, temporary / f"{name}.bin")
            records[name] = asdict(record)
        elif name in arrays:
            dtype = _dtype_of(name, arrays[name])
            array = np.ascontiguousarray(arrays[name], dtype)
            digest = write_blocks(temporary / f"{name}.bin", blocks_of(array.reshape(-1).view(np.uint8)))
            records[name] = asdict(ArrayRecord(dtype, array.shape, digest.bytes, digest.sha256, digest.crcs))
    document = {**asdict(counts), "block_bytes": BLOCK_BYTES, "arrays": records}
    content = json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
    sha256 = write_blocks(temporary / RECORD, blocks_of(np.frombuffer(content, np.uint8))).sha256
    sync_directory(temporary)
    rename(temporary, folder)
    return SegmentRecord(folder.name, **asdict(counts), sha256=sha256)


def _dtype_of(name: str, array: NDArray[Any]) -> str:
    """Return the dtype that an array is stored in."""
    if name in WIDE_DTYPES and array.max(initial=0) > np.iinfo(DTYPES[name]).max:
        return WIDE_DTYPES[name]
    return DTYPES[name]


class Segment:
    """A reader of a sealed segment; each file is opened when it is first used. Methods raise DamagedMemoryError.

    Attributes:
        folder: The folder of the segment.
        record: The record in the manifest.
        dimension: The dimension of the model's own keys.
        expected: The shape of each array of the layout, by name; None stands for any length.
    """

    def __init__(self, folder: Path, record: SegmentRecord, layout: Layout, dimension: int) -> None:
        """Prepare a reader; no file is opened.

        Args:
            folder: The folder of the segment.
            record: Its record in the manifest.
            layout: The arrays of the entries.
            dimension: The dimension of the model's own keys.
        """
        self.folder = folder
        self.record = record
        self.dimension = dimension
        self.expected = layout.shapes(record.counts, dimension)
        self._arrays: dict[str, StoredArray] = {}

    @cached_property
    def records(self) -> Mapping[str, ArrayRecord]:
        """The records of all arrays in segment.json, checked against the manifest.

        Raises:
            DamagedFile: The file is missing, changed, or does not match the manifest.
            MemoryFolderError: The segment was deleted, since newer generations do not need it.
        """
        file = self.folder / RECORD
        try:
            content = file.read_bytes()
        except OSError as error:
            self._check_still_kept()
            raise read_error(file, error) from error
        if hashlib.sha256(content).hexdigest() != self.record.sha256:
            raise DamagedFile(file, "its sha256 is not the one in the manifest")
        fields = parse(content, file)
        for name, expected in {**asdict(self.record.counts), "block_bytes": BLOCK_BYTES}.items():
            if fields.integer(name) != expected:
                raise fields.field_error(name, f"{expected}, as the manifest implies")
        arrays = fields.fields("arrays")
        return {
            name: ArrayRecord.from_fields(
                arrays.fields(name), [kinds[name] for kinds in (DTYPES, WIDE_DTYPES) if name in kinds], shape
            )
            for name, shape in self.expected.items()
        }

    def array(self, name: str) -> StoredArray:
        """Return an array of the layout.

        Args:
            name: A name in `expected`.

        Raises:
            DamagedFile: The file is missing or has another size.
            MemoryFolderError: The segment was deleted, since newer generations do not need it.
        """
        if name not in self._arrays:
            record = self.records[name]
            try:
                self._arrays[name] = StoredArray(self.file(name), record)
            except DamagedFile:
                self._check_still_kept()
                raise
        return self._arrays[name]

    def open_arrays(self) -> None:
        """Open all arrays, so that they stay readable after their files are deleted."""
        for name in self.expected:
            self.array(name)

    def file(self, name: str) -> Path:
        """Return the file of an array.

        Args:
            name: A name in `DTYPES`; the file need not exist.
        """
        return self.folder / f"{name}.bin"

    @cached_property
    def rows(self) -> NDArray[np.int64] | None:
        """[entries] the token number of each entry, ascending; None where every token is an entry."""
        if "rows" not in self.expected:
            return None
        rows = self.array("rows").all()
        if rows.size and (rows[0] < 0 or rows[-1] >= self.record.tokens or (rows[1:] <= rows[:-1]).any()):
            raise DamagedFile(self.file("rows"), f"its rows do not ascend from 0 to {self.record.tokens - 1} at most")
        return rows

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] the first token of each pair."""
        return self.checked_offsets("offsets", self.record.tokens)

    def of_entries(self, name: str) -> NDArray[Any]:
        """Return the values of an array of tokens at the entries.

        Args:
            name: `values` or `log_probs`.

        Returns:
            [entries].
        """
        array = self.array(name)
        return array.all() if self.rows is None else array.gather(self.rows)

    def pair_numbers(self) -> NDArray[np.int32]:
        """Return [entries] the number of each entry's pair in the segment."""
        if self.rows is None:
            return np.repeat(np.arange(self.record.pairs, dtype=np.int32), np.diff(self.offsets))
        return (np.searchsorted(self.offsets, self.rows, side="right") - 1).astype(np.int32)

    def select_entries(self, kept: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """Return the arrays that change when entries are pruned.

        Args:
            kept: [entries] True for the entries to keep.

        Returns:
            `rows` and the arrays of the entries, by name.
        """
        chosen = np.flatnonzero(kept)
        rows = chosen if self.rows is None else self.rows[chosen]
        return {"rows": rows} | {
            name: self.array(name).gather(chosen) for name in ENTRY_ARRAYS if name in self.expected
        }

    @cached_property
    def source_offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] the first byte of each source."""
        return self.checked_offsets("source_offsets", self.records["sources"].bytes)

    @cached_property
    def target_offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] the first byte of each target."""
        return self.checked_offsets("target_offsets", self.records["targets"].bytes)

    def pairs(self, start: int, stop: int) -> Iterator[tuple[str, str, int, int, int, int]]:
        """Yield consecutive pairs.

        Args:
            start: The first pair.
            stop: The pair after the last.

        Yields:
            Source, target, number of the origin, location, first entry, and last entry + 1.
        """
        for first in range(start, stop, _CHUNK):
            last = min(first + _CHUNK, stop)
            tokens = self.offsets[first : last + 1]
            entries = (tokens if self.rows is None else np.searchsorted(self.rows, tokens)).tolist()
            yield from zip(
                self._texts("sources", self.source_offsets, first, last),
                self._texts("targets", self.target_offsets, first, last),
                self.array("origins").read(first, last).tolist(),
                self.array("locations").read(first, last).tolist(),
                entries[:-1],
                entries[1:],
                strict=True,
            )

    def sources(self, start: int, stop: int) -> list[str]:
        """Return the sources of consecutive pairs.

        Args:
            start: The first pair.
            stop: The pair after the last.
        """
        return self._texts("sources", self.source_offsets, start, stop)

    def find(self, source: bytes, target: bytes | None = None) -> NDArray[np.int64]:
        """Return the numbers of the pairs with given texts.

        Args:
            source: The source in UTF-8, compared exactly.
            target: The target in UTF-8, compared exactly; None accepts any.

        Returns:
            [found] numbers of pairs, ascending.
        """
        sides = [("sources", self.source_offsets, source)]
        if target is not None:
            sides.append(("targets", self.target_offsets, target))
        same_length = [np.diff(offsets) == len(text) for _, offsets, text in sides]
        pairs = np.flatnonzero(np.logical_and.reduce(same_length))
        for name, offsets, text in sides:
            blob = self.array(name)
            for place, byte in enumerate(text):  # byte by byte, for fewer and fewer pairs
                if len(pairs) < _FEW:
                    break
                pairs = pairs[blob.gather(offsets[pairs] + place) == byte]
            starts = offsets[pairs].tolist()
            pairs = pairs[[blob.read(start, start + len(text)).tobytes() == text for start in starts]]
        return pairs

    def entries_of(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries of given pairs.

        Args:
            pairs: [n] numbers of pairs.

        Returns:
            [entries of these pairs] int64, in the order of the pairs.
        """
        return rows_of_groups(self.offsets if self.rows is None else np.searchsorted(self.rows, self.offsets), pairs)

    def find_origin(self, origin: int) -> NDArray[np.int64]:
        """Return the numbers of the pairs of an origin.

        Args:
            origin: The number of the origin in the manifest.
        """
        return np.flatnonzero(self.array("origins").all() == origin)

    def locate(self, entry: int) -> tuple[int, int]:
        """Find the pair of an entry.

        Args:
            entry: The number of the entry in this segment.

        Returns:
            The number of the pair in this segment, and the entry's position among its tokens.
        """
        token = entry if self.rows is None else int(self.rows[entry])
        pair = int(np.searchsorted(self.offsets, token, side="right")) - 1
        return pair, token - int(self.offsets[pair])

    def checked_offsets(self, name: str, end: int) -> NDArray[np.int64]:
        """Return an array of offsets after a check that they ascend from 0.

        Args:
            name: The name of the array.
            end: The last offset.

        Returns:
            [pairs + 1] int64.

        Raises:
            DamagedFile: The offsets do not ascend from 0 to `end`.
        """
        offsets = self.array(name).all()
        if offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
            raise DamagedFile(self.file(name), f"its offsets do not ascend from 0 to {end}")
        return offsets

    def _check_still_kept(self) -> None:
        """Raise MemoryFolderError if the segment was deleted because newer generations do not need it."""
        kept = current_manifest(self.folder.parent.parent).segments
        if not self.folder.exists() and self.record.name not in {record.name for record in kept}:
            raise MemoryFolderError(
                f"{self.folder} was deleted, since newer generations of this memory were committed meanwhile: "
                "open the memory again"
            )

    def _texts(self, name: str, offsets: NDArray[np.int64], start: int, stop: int) -> list[str]:
        bounds = offsets[start : stop + 1].tolist()
        blob = self.array(name).read(bounds[0], bounds[-1]).tobytes()
        try:
            return [blob[a - bounds[0] : b - bounds[0]].decode("utf-8") for a, b in pairwise(bounds)]
        except UnicodeDecodeError as error:
            raise DamagedFile(self.file(name), f"a text of pairs {start} to {stop - 1} is not UTF-8") from error
