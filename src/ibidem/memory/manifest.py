"""The manifest of a generation: model identity, segments, arrays, artefacts and snapshots."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory.json_document import LARGEST_DIMENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.memory.json_document import Fields

DTYPES: Mapping[str, str] = {
    "keys": "<f2",
    "compact": "|i1",
    "clusters": "<i4",
    "rows": "<i8",
    "values": "<u2",
    "log_probs": "<f2",
    "offsets": "<i8",
    "sources": "|u1",
    "source_offsets": "<i8",
    "targets": "|u1",
    "target_offsets": "<i8",
    "origins": "<i4",
    "locations": "<i8",
    "source_vectors": "|i1",
}
# The dimension of source vectors.
SOURCE_WIDTH = 64
# The dtypes of arrays whose numbers do not fit the one above.
WIDE_DTYPES: Mapping[str, str] = {"values": "<i4"}
# Arrays with a row for each entry, which pruning shortens. All others belong to the tokens and pairs, which stay.
ENTRY_ARRAYS = ("keys", "compact", "clusters")
FORMAT = 5
LARGEST_VOCABULARY = 1 << 31
SEEDS = range(-(1 << 63), 1 << 64)
SEGMENT_NAME = r"[0-9]{6,12}"
ARTEFACT_NAME = r"[a-z][a-z0-9_]{0,63}"
ARTEFACT_FILE = rf"{ARTEFACT_NAME}-[0-9]{{6,12}}\.[a-z0-9]{{1,16}}"
SNAPSHOT_FILE = rf"{ARTEFACT_NAME}(-[0-9]{{6,12}})?\.json"


@dataclass(frozen=True)
class Counts:
    """The sizes of a segment; a pruned segment has fewer entries than tokens.

    Attributes:
        entries: The number of entries, each with a key.
        tokens: The number of target tokens.
        pairs: The number of sentence pairs.
    """

    entries: int
    tokens: int
    pairs: int


@dataclass(frozen=True)
class Layout:
    """The arrays that every segment of a generation stores for its entries.

    Attributes:
        keys: Whether the model's own keys are stored.
        compact: The dimension of the compact keys; None without them.
        clusters: Whether the clusters of the entries are stored.
    """

    keys: bool = True
    compact: int | None = None
    clusters: bool = False

    @classmethod
    def from_fields(cls, fields: Fields) -> Layout:
        """Read and check the layout in a manifest.

        Args:
            fields: The JSON object.

        Raises:
            DamagedFile: A field is missing or invalid.
        """
        return cls(
            keys=fields.flag("keys"),
            compact=fields.optional_integer("compact", 1, LARGEST_DIMENSION),
            clusters=fields.flag("clusters"),
        )

    def with_array(self, name: str, width: int | None) -> Layout:
        """Return the layout with an additional array.

        Args:
            name: `keys`, `compact` or `clusters`.
            width: The dimension of the compact keys; it is ignored for other arrays.
        """
        return Layout(**{**asdict(self), name: width if name == "compact" else True})

    def without_array(self, name: str) -> Layout:
        """Return the layout without an array.

        Args:
            name: `keys`, `compact` or `clusters`.
        """
        return Layout(**{**asdict(self), name: None if name == "compact" else False})

    def shapes(self, counts: Counts, dimension: int) -> dict[str, tuple[int | None, ...]]:
        """Return the shapes of the arrays of a segment, by name.

        Args:
            counts: The sizes of the segment.
            dimension: The dimension of the model's own keys.

        Returns:
            A shape for each array; None stands for any length.
        """
        shapes: dict[str, tuple[int | None, ...]] = {
            "keys": (counts.entries, dimension),
            "compact": (counts.entries, self.compact),
            "clusters": (counts.entries,),
            "rows": (counts.entries,),
            "values": (counts.tokens,),
            "log_probs": (counts.tokens,),
            "offsets": (counts.pairs + 1,),
            "sources": (None,),
            "source_offsets": (counts.pairs + 1,),
            "targets": (None,),
            "target_offsets": (counts.pairs + 1,),
            "origins": (counts.pairs,),
            "locations": (counts.pairs,),
            "source_vectors": (counts.pairs, SOURCE_WIDTH),
        }
        absent = {
            "keys": not self.keys,
            "compact": self.compact is None,
            "clusters": not self.clusters,
            "rows": counts.entries == counts.tokens,
        }
        return {name: shape for name, shape in shapes.items() if not absent.get(name)}


@dataclass(frozen=True)
class ModelIdentity:
    """The base model and tokenizer that a memory belongs to.

    Attributes:
        name: The name or path of the model.
        model_fingerprint: The sha256 of the weights.
        tokenizer_fingerprint: The sha256 of the tokenizer's behaviour.
        dimension: The dimension of the model's keys.
        vocabulary_size: The number of target tokens.
        source_language: The source language; None where it is unknown.
        target_language: The target language; None where it is unknown.
        source_prefix: Text before every source.

    Raises:
        UsageError: Invalid dimension or vocabulary size.
    """

    name: str
    model_fingerprint: str
    tokenizer_fingerprint: str
    dimension: int
    vocabulary_size: int
    source_language: str | None
    target_language: str | None
    source_prefix: str = ""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("dimension", self.dimension, LARGEST_DIMENSION),
            ("vocabulary_size", self.vocabulary_size, LARGEST_VOCABULARY),
        ):
            if type(value) is not int or not 1 <= value <= most:
                raise UsageError(
                    f"the {name} of model {self.name!r} is {value!r}: give a whole number from 1 to {most}"
                )

    @classmethod
    def from_fields(cls, fields: Fields) -> ModelIdentity:
        """Read and check the identity in a manifest.

        Args:
            fields: The JSON object.

        Raises:
            DamagedFile: A field is missing or invalid.
        """
        return cls(
            name=fields.text("name"),
            model_fingerprint=fields.text("model_fingerprint"),
            tokenizer_fingerprint=fields.text("tokenizer_fingerprint"),
            dimension=fields.integer("dimension", 1, LARGEST_DIMENSION),
            vocabulary_size=fields.integer("vocabulary_size", 1, LARGEST_VOCABULARY),
            source_language=fields.optional_text("source_language"),
            target_language=fields.optional_text("target_language"),
            source_prefix=fields.text("source_prefix"),
        )


@dataclass(frozen=True)
class SegmentRecord:
    """The record of a sealed segment.

    Attributes:
        name: The name of its folder.
        entries: The number of entries.
        tokens: The number of target tokens.
        pairs: The number of pairs.
        sha256: The sha256 of its segment.json.
    """

    name: str
    entries: int
    tokens: int
    pairs: int
    sha256: str

    @property
    def counts(self) -> Counts:
        """The entries, tokens and pairs."""
        return Counts(self.entries, self.tokens, self.pairs)

    @classmethod
    def from_fields(cls, fields: Fields) -> SegmentRecord:
        """Read and check the record of a segment in a manifest.

        Args:
            fields: The JSON object.

        Raises:
            DamagedFile: A field is missing or invalid.
        """
        return cls(
            name=fields.text("name", SEGMENT_NAME, "the six digits of a segment"),
            entries=(entries := fields.integer("entries")),
            tokens=fields.integer("tokens", entries),
            pairs=fields.integer("pairs"),
            sha256=fields.sha256("sha256"),
        )


@dataclass(frozen=True)
class ArtefactRecord:
    """The record of an artefact.

    Attributes:
        file: The name of its file under artefacts/.
        bytes: The size of the file.
        sha256: The sha256 of the file.
        info: The JSON object that was stored with it.
    """

    file: str
    bytes: int
    sha256: str
    info: Mapping[str, Any]

    @classmethod
    def from_fields(cls, fields: Fields) -> ArtefactRecord:
        """Read and check the record of an artefact in a manifest.

        Args:
            fields: The JSON object.

        Raises:
            DamagedFile: A field is missing or invalid.
        """
        return cls(
            file=fields.text("file", ARTEFACT_FILE, "the name of an artefact's file"),
            bytes=fields.integer("bytes"),
            sha256=fields.sha256("sha256"),
            info=fields.mapping("info"),
        )


@dataclass(frozen=True)
class SnapshotRecord:
    """The record of a snapshot, a generation that is kept under a name.

    Attributes:
        file: The name of its manifest under snapshots/.
        sha256: The sha256 of that file.
    """

    file: str
    sha256: str

    @classmethod
    def from_fields(cls, fields: Fields) -> SnapshotRecord:
        """Read and check the record of a snapshot in a manifest.

        Args:
            fields: The JSON object.

        Raises:
            DamagedFile: A field is missing or invalid.
        """
        return cls(fields.text("file", SNAPSHOT_FILE, "the name of a snapshot's file"), fields.sha256("sha256"))


@dataclass(frozen=True)
class Manifest:
    """The manifest of one generation.

    Attributes:
        generation: The number of the generation, from 1.
        created: The time of creation of the memory, ISO 8601 in UTC.
        updated: The time of the commit, ISO 8601 in UTC.
        ibidem_version: The version that wrote the manifest.
        identity: The base model.
        seed: The seed of learning.
        origins: The names of the origins, by their numbers in the segments.
        segments: The records of the segments, in order.
        artefacts: The records of the artefacts, by name.
        stages: The notes of the stages of learning, by name.
        complete: Whether learning is complete.
        layout: The arrays of the entries.
        journal: The number of the first journal whose changes are not in the segments.
        numbering: The generation since which entries were only appended or removed one by one.
        merged: The number of entries that the combiners and the index were made for, including entries that were
            removed since then. Later entries were added.
        snapshots: The records of the snapshots, by name.
    """

    generation: int
    created: str
    updated: str
    ibidem_version: str
    identity: ModelIdentity
    seed: int
    origins: tuple[str, ...]
    segments: tuple[SegmentRecord, ...]
    artefacts: Mapping[str, ArtefactRecord]
    stages: Mapping[str, Mapping[str, Any]]
    complete: bool
    layout: Layout = field(default_factory=Layout)
    journal: int = 1
    numbering: int = 1
    merged: int = 0
    snapshots: Mapping[str, SnapshotRecord] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of entries in all segments."""
        return sum(segment.entries for segment in self.segments)

    @property
    def counts(self) -> Counts:
        """The entries, tokens and pairs of all segments."""
        return Counts(
            self.entries,
            sum(segment.tokens for segment in self.segments),
            sum(segment.pairs for segment in self.segments),
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with `format` first."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, fields: Fields) -> Manifest:
        """Read and check all fields.

        Args:
            fields: The JSON object.

        Raises:
            DamagedMemoryError: A field is missing or invalid.
            MemoryFolderError: The manifest has another format.
        """
        check_format(str(fields.file), fields.integer("format", 1))
        segments = tuple(SegmentRecord.from_fields(item) for item in fields.list_of_fields("segments"))
        if len({segment.name for segment in segments}) < len(segments):
            raise fields.field_error("segments", "a list of segments, each once")
        artefacts, stages = fields.fields("artefacts"), fields.fields("stages")
        snapshots = fields.fields("snapshots")
        return cls(
            generation=fields.integer("generation", 1),
            created=_read_timestamp(fields, "created"),
            updated=_read_timestamp(fields, "updated"),
            ibidem_version=fields.text("ibidem_version"),
            identity=ModelIdentity.from_fields(fields.fields("identity")),
            seed=fields.integer("seed", SEEDS.start, SEEDS.stop - 1),
            origins=fields.texts("origins"),
            segments=segments,
            artefacts={name: ArtefactRecord.from_fields(artefacts.fields(name)) for name in artefacts.names()},
            stages={name: stages.mapping(name) for name in stages.names()},
            complete=fields.flag("complete"),
            layout=Layout.from_fields(fields.fields("layout")),
            journal=fields.integer("journal", 1),
            numbering=fields.integer("numbering", 1),
            merged=fields.integer("merged"),
            snapshots={name: SnapshotRecord.from_fields(snapshots.fields(name)) for name in snapshots.names()},
        )


def check_format(file: str, number: int) -> None:
    """Check that a memory has the format of this version.

    Args:
        file: The name of the file for the message.
        number: The format of the file.

    Raises:
        MemoryFolderError: The format is older or newer.
    """
    if number == FORMAT:
        return
    age, remedy = ("a newer", "upgrade ibidem") if number > FORMAT else ("an older", "learn the memory again")
    raise MemoryFolderError(f"{file} was written by {age} ibidem (format {number}; this one reads {FORMAT}): {remedy}")


def utc_timestamp(value: datetime | None = None) -> str:
    """Return a time as ISO 8601 in UTC.

    Args:
        value: The time, with a time zone; None is now.

    Raises:
        UsageError: The time has no time zone.
    """
    if value is not None and value.tzinfo is None:
        raise UsageError(f"the time {value.isoformat()} has no time zone: add one, such as datetime.UTC")
    return (value or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _read_timestamp(fields: Fields, name: str) -> str:
    value = fields.text(name, wanted="a time in ISO 8601")
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise fields.field_error(name, "a time in ISO 8601") from error
    return value
