"""The objective of a training run: a weighted sum, each part with its own f_theta if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ibidem.learn.compact.nce_binary import BinaryNce
from ibidem.learn.compact.nce_in_batch import InBatchNce
from ibidem.learn.compact.prediction import Prediction
from ibidem.learn.compact.ranking import ClippedRanking, Ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.learn.compact.triplet import Triplet

_PARTS: dict[str, Callable[[CompactSettings, int], nn.Module]] = {
    "nce in_batch": lambda settings, _size: InBatchNce(settings.label_smoothing),
    "nce binary": lambda settings, _size: BinaryNce(settings.dimension),
    "ranking paper": lambda _settings, _size: Ranking(),
    "ranking clipped": lambda _settings, _size: ClippedRanking(),
    "prediction": lambda settings, size: Prediction(settings.dimension, size, settings.label_smoothing),
}


class Objective(nn.Module):
    """The sum over its parts of weight x loss."""

    def __init__(self, parts: Sequence[tuple[nn.Module, float]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([part for part, _ in parts])
        self.weights = [weight for _, weight in parts]

    @classmethod
    def of(cls, settings: CompactSettings, vocabulary_size: int) -> Objective:
        """The parts that the settings name, in the readings that they choose."""
        readings = {"nce": f"nce {settings.nce}", "ranking": f"ranking {settings.ranking}"}
        return cls(
            [
                (_PARTS[readings.get(name, name)](settings, vocabulary_size), weight)
                for name, weight in settings.objectives
            ]
        )

    def forward(self, triplet: Triplet) -> Tensor:
        """The weighted mean loss of a batch, a scalar."""
        losses = [weight * part(triplet) for part, weight in zip(self.parts, self.weights, strict=True)]
        return torch.stack(losses).sum()
