"""The manifest of a generation: model identity, segments, arrays, artefacts, snapshots."""

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
    "compact": "<f2",
    "clusters": "<i4",
    "rows": "<i8",
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
# One row for each entry: what pruning thins out. All else belongs to the tokens and pairs, which stay.
ENTRY_ARRAYS = ("keys", "compact", "clusters")


@dataclass(frozen=True)
class Counts:
    """The entries, target tokens and pairs of a segment; fewer entries than tokens once it was pruned."""

    entries: int
    tokens: int
    pairs: int


@dataclass(frozen=True)
class Layout:
    """What every segment of a generation holds of an entry: the model's own keys, compact keys, its cluster."""

    keys: bool = True
    compact: int | None = None
    clusters: bool = False

    @classmethod
    def from_fields(cls, fields: Fields) -> Layout:
        """Read and check; raises DamagedMemoryError."""
        return cls(
            keys=fields.flag("keys"),
            compact=fields.optional_integer("compact", 1, LARGEST_DIMENSION),
            clusters=fields.flag("clusters"),
        )

    def with_array(self, name: str, width: int | None) -> Layout:
        """This layout and an array of entries; `width` is its second dimension, if it has one."""
        return Layout(**{**asdict(self), name: width if name == "compact" else True})

    def without_array(self, name: str) -> Layout:
        """This layout less an array of entries."""
        return Layout(**{**asdict(self), name: None if name == "compact" else False})

    def shapes(self, counts: Counts, dimension: int) -> dict[str, tuple[int | None, ...]]:
        """The arrays of a segment with these counts and keys of this dimension (None: any length)."""
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
        }
        absent = {
            "keys": not self.keys,
            "compact": self.compact is None,
            "clusters": not self.clusters,
            "rows": counts.entries == counts.tokens,
        }
        return {name: shape for name, shape in shapes.items() if not absent.get(name)}


FORMAT = 4
LARGEST_VOCABULARY = 1 << 31
SEEDS = range(-(1 << 63), 1 << 64)

SEGMENT_NAME = r"[0-9]{6,12}"
ARTEFACT_NAME = r"[a-z][a-z0-9_]{0,63}"
ARTEFACT_FILE = rf"{ARTEFACT_NAME}-[0-9]{{6,12}}\.[a-z0-9]{{1,16}}"
SNAPSHOT_FILE = rf"{ARTEFACT_NAME}(-[0-9]{{6,12}})?\.json"


@dataclass(frozen=True)
class ModelIdentity:
    """The base model and the tokenizer that a memory belongs to."""

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
    def from_fields(cls, fields: Fields, format: int = FORMAT) -> ModelIdentity:
        """Read and check; raises DamagedMemoryError."""
        return cls(
            name=fields.text("name"),
            model_fingerprint=fields.text("model_fingerprint"),
            tokenizer_fingerprint=fields.text("tokenizer_fingerprint"),
            dimension=fields.integer("dimension", 1, LARGEST_DIMENSION),
            vocabulary_size=fields.integer("vocabulary_size", 1, LARGEST_VOCABULARY),
            source_language=fields.optional_text("source_language"),
            target_language=fields.optional_text("target_language"),
            source_prefix=fields.text("source_prefix") if format > 1 else "",
        )


@dataclass(frozen=True)
class SegmentRecord:
    """A sealed segment: its folder's name, its counts, and the sha256 of its segment.json."""

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
    def from_fields(cls, fields: Fields, format: int = FORMAT) -> SegmentRecord:
        """Read and check; raises DamagedMemoryError."""
        return cls(
            name=fields.text("name", SEGMENT_NAME, "the six digits of a segment"),
            entries=(entries := fields.integer("entries")),
            tokens=fields.integer("tokens", entries) if format > 1 else entries,
            pairs=fields.integer("pairs"),
            sha256=fields.sha256("sha256"),
        )


@dataclass(frozen=True)
class ArtefactRecord:
    """An opaque file of another room: its name under artefacts/, size, sha256, and that room's notes."""

    file: str
    bytes: int
    sha256: str
    info: Mapping[str, Any]

    @classmethod
    def from_fields(cls, fields: Fields) -> ArtefactRecord:
        """Read and check; raises DamagedMemoryError."""
        return cls(
            file=fields.text("file", ARTEFACT_FILE, "the name of an artefact's file"),
            bytes=fields.integer("bytes"),
            sha256=fields.sha256("sha256"),
            info=fields.mapping("info"),
        )


@dataclass(frozen=True)
class SnapshotRecord:
    """A generation that is kept by name: the file of its manifest under snapshots/, and the sha256 of it."""

    file: str
    sha256: str

    @classmethod
    def from_fields(cls, fields: Fields) -> SnapshotRecord:
        """Read and check; raises DamagedMemoryError."""
        return cls(fields.text("file", SNAPSHOT_FILE, "the name of a snapshot's file"), fields.sha256("sha256"))


@dataclass(frozen=True)
class Manifest:
    """One generation of a memory; `created` and `updated` are ISO 8601 in UTC.

    journal: the number of the first journal whose changes are not in the segments. numbering: the generation since
    which entries were only added at the end or taken out one by one. merged: how many entries, those that were taken
    out since counted in, the combiners and the index were made for; what came later was added. snapshots: the
    generations that are kept by name. format: the one that it was read in.
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
    format: int = FORMAT

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
        """A JSON object with `format` first."""
        value = asdict(self)
        return {"format": value.pop("format"), **value}

    @classmethod
    def from_json(cls, fields: Fields) -> Manifest:
        """Read and check all fields; raises DamagedMemoryError, or MemoryFolderError for a newer format."""
        number = fields.integer("format", 1)
        if number > FORMAT:
            raise MemoryFolderError(newer_format(str(fields.file), number))
        segments = tuple(SegmentRecord.from_fields(item, number) for item in fields.list_of_fields("segments"))
        if len({segment.name for segment in segments}) < len(segments):
            raise fields.field_error("segments", "a list of segments, each once")
        artefacts, stages = fields.fields("artefacts"), fields.fields("stages")
        snapshots = fields.fields("snapshots") if number > 3 else None
        return cls(
            generation=fields.integer("generation", 1),
            created=_read_timestamp(fields, "created"),
            updated=_read_timestamp(fields, "updated"),
            ibidem_version=fields.text("ibidem_version"),
            identity=ModelIdentity.from_fields(fields.fields("identity"), number),
            seed=fields.integer("seed", SEEDS.start, SEEDS.stop - 1),
            origins=fields.texts("origins"),
            segments=segments,
            artefacts={name: ArtefactRecord.from_fields(artefacts.fields(name)) for name in artefacts.names()},
            stages={name: stages.mapping(name) for name in stages.names()},
            complete=fields.flag("complete"),
            layout=Layout.from_fields(fields.fields("layout")) if number > 1 else Layout(),
            journal=fields.integer("journal", 1) if number > 2 else 1,
            numbering=fields.integer("numbering", 1) if number > 2 else 1,
            merged=fields.integer("merged") if number > 2 else sum(segment.entries for segment in segments),
            snapshots={}
            if snapshots is None
            else {name: SnapshotRecord.from_fields(snapshots.fields(name)) for name in snapshots.names()},
            format=number,
        )


def newer_format(file: str, number: int) -> str:
    """Return the message for a memory of a newer format."""
    read = f"format {number}; this one reads up to {FORMAT}"
    return f"{file} was written by a newer ibidem ({read}): upgrade ibidem"


def utc_timestamp(value: datetime | None = None) -> str:
    """A moment (now, unless given) as ISO 8601 in UTC; raises UsageError for one without a time zone."""
    if value is not None and value.tzinfo is None:
        raise UsageError(f"the moment {value.isoformat()} has no time zone: give one, such as datetime.UTC")
    return (value or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _read_timestamp(fields: Fields, name: str) -> str:
    value = fields.text(name, wanted="a moment in ISO 8601")
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise fields.field_error(name, "a moment in ISO 8601") from error
    return value
