"""Which arrays the segments of a memory have, of which type and shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ibidem.memory.fields import LARGEST_DIMENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.memory.fields import Fields

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
OF_ENTRIES = ("keys", "compact", "clusters")


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
