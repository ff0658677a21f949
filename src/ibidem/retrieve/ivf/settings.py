"""What the index setting 'native' and its parameters mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ibidem.errors import UsageError
from ibidem.native import MOST_DIMENSIONS, native

NAME = "native"
EXAMPLE = "native;nprobe=64"
TARGET_RECALL = 0.98
NPROBE, REFINE = 64, 72
# Enough keys in a list that its last block of sixteen is not most of it.
_KEYS_PER_LIST = 48
# With more, finding the nearest lists would take longer than reading them.
_MOST_LISTS = 1 << 16
# Of gamma with nprobe.
_SLOPE = 10
_WHOLE = ("lists", "nprobe", "refine")


@dataclass(frozen=True)
class NativeSettings:
    """How the native index is built and searched.

    lists: that the keys are divided among; nprobe: about the most of them that a query looks into; gamma: none whose
    centroid is farther than this times the worst candidate (squared distances), which spares most queries most lists,
    and of the others most blocks; refine: candidates whose exact distance decides, for sixteen neighbours.
    target_recall: look farther after building, until recall@16 reaches this.
    """

    lists: int
    nprobe: int
    gamma: float
    refine: int = REFINE
    target_recall: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> int:
        """The most of centroids that a query looks into: they hold about thirteen times the lists that it may want."""
        return max(32, self.nprobe)

    @property
    def block_gamma(self) -> float:
        """As gamma, for the mean of a block of keys: blocks are tighter than their lists."""
        return max(1.0, 0.85 * self.gamma)

    def pool(self, k: int) -> int:
        """Candidates for k neighbours: fewer of them need fewer, and each may be found in both of its places."""
        return max(4 * k, self.refine * (16 + k) // 32)

    @property
    def brief(self) -> NativeSettings:
        """The same, looking into a quarter of the lists, for who needs the neighbours less (docs/results/search.md)."""
        nprobe = max(1, self.nprobe // 4)
        return replace(self, nprobe=nprobe, gamma=max(1.0, self.gamma * math.pow(nprobe / self.nprobe, 1 / _SLOPE)))

    def wider(self) -> NativeSettings:
        """The same, looking somewhat farther: into a tenth more lists, with the gamma that goes with them."""
        nprobe = min(self.lists, max(self.nprobe + 1, round(self.nprobe * 2**0.125)))
        return replace(self, nprobe=nprobe, gamma=self.gamma * math.pow(2, 0.125 / _SLOPE))


def gamma_for(nprobe: int) -> float:
    """The gamma that goes with nprobe: along this line a recall costs least, on real keys (docs/results/search.md)."""
    return max(1.0, 1.18 * math.pow(nprobe / NPROBE, 1 / _SLOPE))


def default_lists(size: int) -> int:
    """About 16 √N lists, a power of two, and enough keys in each.

    Neighbours lie in about as many lists however many there are, so many short ones are less to read than few long.
    """
    wanted = 1 << round(math.log2(16 * math.sqrt(max(1, size))))
    most = 1 << max(0, (size // _KEYS_PER_LIST).bit_length() - 1)
    return min(wanted, most, _MOST_LISTS)


def suits(dimension: int) -> bool:
    """Whether keys of so many dimensions can be searched natively, and the library is here."""
    return native() is not None and dimension % 4 == 0 and 4 <= dimension <= MOST_DIMENSIONS


def resolve_native(setting: str, size: int, dimension: int) -> NativeSettings:
    """Read 'native' or 'native;name=value;…' for size keys of some dimensions."""
    if native() is None:
        raise UsageError(
            f"The index setting {setting!r} needs ibidem's native library, which was not built here or does not run on "
            "this CPU. Use 'auto'."
        )
    if dimension % 4 or dimension > MOST_DIMENSIONS:
        raise UsageError(
            f"The native index takes keys of 4, 8, … {MOST_DIMENSIONS} dimensions, not of {dimension}. Use 'auto'."
        )
    numbers = dict(_read(setting, part.strip()) for part in setting.split(";")[1:])
    lists = int(numbers.get("lists", default_lists(size)))
    if size and lists > size:
        raise UsageError(f"The index {setting!r} has {lists} lists, but there are {size} keys. Leave 'lists=' out.")
    fixed = numbers.keys() & {"nprobe", "gamma", "refine"}
    nprobe = int(numbers.get("nprobe", NPROBE))
    return NativeSettings(
        lists=lists,
        nprobe=nprobe,
        gamma=numbers.get("gamma", gamma_for(nprobe)),
        refine=int(numbers.get("refine", REFINE)),
        target_recall=None if fixed else TARGET_RECALL,
    )


def _read(setting: str, assignment: str) -> tuple[str, float]:
    name, _, text = assignment.partition("=")
    name = name.strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if name not in (*_WHOLE, "gamma") or not 1 <= value < 2**31 or (name in _WHOLE and value != int(value)):
        raise UsageError(
            f"The index setting {setting!r} has {assignment!r}, which is no parameter of it. Use nprobe=, refine= or "
            f"lists= with a whole number, or gamma= with a number, each at least 1, as in {EXAMPLE!r}."
        )
    return name, value
