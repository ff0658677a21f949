"""Sealed segments outside a memory: written by workers, checked and adopted by the writer of the memory.

The folder holds `segment/`, the files of the segment, and `sealed.json` with what the segment was made for: the model,
the compactor, and the numbers of its origins. A folder that exists is complete: it is renamed when all is written.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ibidem.errors import MismatchError
from ibidem.memory.files import TEMPORARY, DamagedFile, read_error, replace_file
from ibidem.memory.integrity import check_segment
from ibidem.memory.json_document import LARGEST_DIMENSION, encode_document, has_valid_checksum, parse
from ibidem.memory.manifest import Counts, Layout, ModelIdentity, SegmentRecord
from ibidem.memory.pairs import make_content
from ibidem.memory.segment import Segment, write_segment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ibidem.memory.manifest import Manifest
    from ibidem.memory.pairs import SegmentData

SEAL = "sealed.json"
_SEGMENT = "segment"
_FORMAT = 1
_REMEDY = "delete the folder and make the segment again"


@dataclass(frozen=True)
class SealedSegment:
    """A segment that is no part of a memory yet.

    Attributes:
        folder: The folder.
        counts: The sizes.
        sha256: The sha256 of its segment.json.
        layout: The arrays of its entries.
        model_fingerprint: The fingerprint of the base model.
        tokenizer_fingerprint: The fingerprint of the tokenizer.
        dimension: The dimension of the model's own keys.
        compactor: The sha256 of the compactor's file; None where the keys are not compact.
        origins: The number of each origin of its pairs.
    """

    folder: Path
    counts: Counts
    sha256: str
    layout: Layout
    model_fingerprint: str
    tokenizer_fingerprint: str
    dimension: int
    compactor: str | None
    origins: Mapping[str, int]

    def reader(self) -> Segment:
        """Return a reader of the segment; it verifies what it reads."""
        record = SegmentRecord(_SEGMENT, **asdict(self.counts), sha256=self.sha256)
        return Segment(self.folder / _SEGMENT, record, self.layout, self.dimension)


def layout_of(data: SegmentData) -> Layout:
    """Return the layout of a new segment.

    Args:
        data: The pairs and their entries.
    """
    return Layout(keys=data.keys is not None, compact=None if data.compact is None else int(data.compact.shape[1]))


def unique_path(path: Path) -> Path:
    """Return a temporary name beside `path` that no other process uses.

    Args:
        path: The final place of a file or directory.
    """
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(8)}")


def seal_segment(
    folder: Path,
    data: SegmentData,
    identity: ModelIdentity,
    origins: Mapping[str, int],
    *,
    compactor: str | None = None,
) -> SealedSegment:
    """Write a segment outside a memory, durably, for `Edit.adopt_segment`; the same data gives the same bytes.

    Args:
        folder: An existing folder that no other process uses yet.
        data: The pairs and their entries.
        identity: The base model.
        origins: The number that each origin of the pairs has, or gets, in the memory.
        compactor: The sha256 of the compactor's file, for compact keys.

    Returns:
        The sealed segment.
    """
    names = dict.fromkeys(data.origins)
    record = write_segment(folder / _SEGMENT, make_content(data, origins))
    sealed = SealedSegment(
        folder,
        record.counts,
        record.sha256,
        layout_of(data),
        identity.model_fingerprint,
        identity.tokenizer_fingerprint,
        identity.dimension,
        compactor,
        {name: origins[name] for name in names},
    )
    plain = {name: value for name, value in asdict(sealed).items() if name != "folder"}
    replace_file(folder / SEAL, encode_document({"format": _FORMAT, **plain}, "the seal of a segment"))
    return sealed


def open_sealed(folder: Path) -> SealedSegment:
    """Read the seal of a segment; its arrays are not read.

    Args:
        folder: The folder that `seal_segment` wrote.

    Raises:
        DamagedMemoryError: The seal is missing, or not valid.
    """
    file = folder / SEAL
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error, _REMEDY) from error
    fields = parse(content, file)
    if not has_valid_checksum(content):
        raise DamagedFile(file, "its checksum does not match its content", _REMEDY)
    fields.integer("format", _FORMAT, _FORMAT)
    counts, origins = fields.fields("counts"), fields.fields("origins")
    return SealedSegment(
        folder,
        Counts(entries := counts.integer("entries"), counts.integer("tokens", entries), counts.integer("pairs")),
        fields.sha256("sha256"),
        Layout.from_fields(fields.fields("layout")),
        fields.text("model_fingerprint"),
        fields.text("tokenizer_fingerprint"),
        fields.integer("dimension", 1, LARGEST_DIMENSION),
        fields.optional_text("compactor"),
        {name: origins.integer(name) for name in origins.names()},
    )


def check_sealed(sealed: SealedSegment, manifest: Manifest, compactor: str | None, memory: Path) -> tuple[str, ...]:
    """Check every byte of a sealed segment, and that it fits a generation.

    Args:
        sealed: The segment.
        manifest: The generation that it is to be part of.
        compactor: The sha256 of the compactor of that generation; None without one.
        memory: The folder of the memory, for messages.

    Returns:
        The origins of the generation with those of the segment.

    Raises:
        MismatchError: The segment was made for another model or compactor, or has other arrays or origins.
        DamagedMemoryError: A file is missing or changed.
    """
    identity = manifest.identity
    wanted_compactor = compactor if sealed.layout.compact is not None else None
    for what, found, wanted in (
        ("model", sealed.model_fingerprint, identity.model_fingerprint),
        ("tokenizer", sealed.tokenizer_fingerprint, identity.tokenizer_fingerprint),
        ("dimension", sealed.dimension, identity.dimension),
        ("compactor", sealed.compactor, wanted_compactor),
        ("layout", sealed.layout, manifest.layout if manifest.segments else sealed.layout),
    ):
        if found != wanted:
            shown = [str(value)[:60] for value in (found, wanted)]
            raise MismatchError(
                f"The segment {sealed.folder} was made for another memory than {memory}: its {what} is {shown[0]}, and "
                f"the memory's {shown[1]}. Make it again with the memory's own model and settings."
            )
    origins = _join_origins(sealed, manifest.origins)
    check_segment(sealed.reader(), replace(manifest, origins=origins))
    return origins


def _join_origins(sealed: SealedSegment, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the origins with the new ones of a segment, which must follow in the order of their numbers."""
    origins = list(known)
    for name, number in sorted(sealed.origins.items(), key=lambda item: item[1]):
        if number == len(origins) and name not in origins:
            origins.append(name)
        elif number >= len(origins) or origins[number] != name:
            raise MismatchError(
                f"The segment {sealed.folder} gives its origin {name!r} the number {number}, which it cannot have in "
                "this memory: adopt segments in the order in which they were numbered."
            )
    return tuple(origins)
