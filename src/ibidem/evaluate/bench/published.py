"""The paper's settings in our own loop: its index, and a distribution of the neighbours over the whole vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.combine import Candidates
from ibidem.decode import load_memory
from ibidem.evaluate.bench.contenders import System, memory_contender

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.combine import Weights
    from ibidem.memory import Memory
    from ibidem.model import BaseModel


def dense_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """The best tokens as published code finds them: both distributions written out, summed, and sorted."""
    voted = torch.zeros_like(logits).scatter_add_(1, values, weights.neighbours)
    mixed = (logits.softmax(dim=1) * weights.base[:, None] + voted).log()
    if banned is not None:
        mixed.index_fill_(1, banned, -torch.inf)
    return Candidates(*mixed.topk(min(count, mixed.shape[1]), dim=1))


def published_contender(memory: Memory, model: BaseModel, name: str = "paper's index and mixture") -> System:
    """The memory with IVF1024,PQ64 and a full-vocabulary mixture."""
    return memory_contender(model, load_memory(memory, model, index="paper"), name, dense_candidates)
