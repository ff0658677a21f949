"""The number of parameters of the base model and of what is added to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ibidem.combine import MetaK
from ibidem.compact import NetworkCompactor
from ibidem.reproduce.rows.row import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from ibidem.learn import CompactSettings, MetaKSettings
    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage


@dataclass(frozen=True)
class ParameterCount:
    """The base model, a Meta-k Network and a Compact Network, counted."""

    k: int
    compact: CompactSettings
    metak: MetaKSettings

    alone: ClassVar[bool] = False
    seed: ClassVar[int] = 0
    name: ClassVar[str] = "parameters counted"
    stages: ClassVar[tuple[Stage, ...]] = ()
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    def expected(self, _pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5

    def measure(self, bench: Workspace) -> Measured:
        dimension = bench.model.dimension
        hidden = self.compact.hidden_size(dimension)
        network = NetworkCompactor(dimension, hidden, self.compact.dimension, self.compact.activation)
        return Measured(
            {
                "base": count(bench.model.network),
                "metak": count(MetaK(self.k, 1.0, self.metak.hidden)),
                "compactor": count(network),
            }
        )


def count(module: nn.Module) -> int:
    """The parameters of a module, those that several layers share counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
