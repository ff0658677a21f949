"""What every kind of row can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage


class Measured(NamedTuple):
    """What a row found: figures for the JSON, and what lies beside it."""

    figures: dict[str, Any]
    arrays: Mapping[str, NDArray[Any]] = {}
    translations: Sequence[str] | None = None


class Row(Protocol):
    """The unit of measurement: a frozen dataclass, found again by its digest."""

    alone: ClassVar[bool]
    """Whether it must have the machine to itself, as speed must."""

    @property
    def name(self) -> str:
        """What people call it, and what --only looks at."""
        ...

    @property
    def seed(self) -> int:
        """The seed of what was drawn at random; 0 where nothing was."""
        ...

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What must be made first."""
        ...

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The (domain, part) it reads itself."""
        ...

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        """A guess at the seconds that measuring takes."""
        ...

    def measure(self, bench: Workspace) -> Measured:
        """Measure it on a bench where its stages are made."""
        ...
