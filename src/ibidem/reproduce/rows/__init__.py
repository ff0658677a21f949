"""Rows: the unit of measurement. Each kind of row declares what it needs and measures itself in a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ibidem.reproduce.workspace import Stage, Workspace


class Measured(NamedTuple):
    """What a row measured.

    Attributes:
        figures: JSON values for its result.
        arrays: Arrays to store with it, by name.
        translations: Translations to store with it; None where it has none.
    """

    figures: dict[str, Any]
    arrays: Mapping[str, NDArray[Any]] = {}
    translations: Sequence[str] | None = None


class Row(Protocol):
    """The interface of all rows, which are frozen dataclasses and are identified by their digest.

    Attributes:
        alone: Whether it needs the machine to itself, as a measurement of speed does.
        library: Optional library that it needs; None where it needs none.
    """

    alone: ClassVar[bool]
    library: ClassVar[str | None]

    @property
    def name(self) -> str:
        """Return the name that `--only` matches."""
        ...

    @property
    def seed(self) -> int:
        """Return the seed of its random choices; 0 where it has none."""
        ...

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that must be built before it is measured."""
        ...

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return the (domain, part) of every text that it reads itself."""
        ...

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        """Estimate the seconds that measuring takes.

        Args:
            count_pairs: Returns the number of sentence pairs of a corpus.
        """
        ...

    def measure(self, workspace: Workspace) -> Measured:
        """Measure it in a workspace where its stages are built.

        Args:
            workspace: Model, data and folders.
        """
        ...
