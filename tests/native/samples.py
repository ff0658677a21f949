"""Compactors, combiners and entries of random memories for the tests of the retrieval step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.combine import (
    AdaptiveCombiner,
    ContextualCombiner,
    ContextualNetwork,
    DeviceSourceProjection,
    DistanceDecayCombiner,
    EntryTable,
    FixedCombiner,
    MetaK,
    Sources,
    StepContext,
)
from ibidem.compact import Compactor, LinearCompactor, NetworkCompactor

if TYPE_CHECKING:
    from ibidem.combine import Combiner

ENTRIES, INPUTS, VOCABULARY = 700, 48, 40
COMPACTORS = ("none", "linear", "network", "network in int16")


def make_compactor(kind: str, dimension: int) -> Compactor | None:
    torch.manual_seed(dimension)
    if kind == "linear":
        return LinearCompactor("pca", torch.randn(dimension, INPUTS) / 4, torch.randn(INPUTS))
    if kind.startswith("network"):
        network = NetworkCompactor(INPUTS, 64, dimension, "sigmoid").requires_grad_(False)
        network.outer.weight.mul_(20)
        return network
    return None


def make_combiners(typical: float) -> dict[str, Combiner]:
    """All kinds of combiners for a space of this typical squared distance."""
    torch.manual_seed(7)
    network = MetaK(8, scale=typical).requires_grad_(False)
    network.inner.weight.normal_()
    contextual = ContextualNetwork(8, scale=typical).requires_grad_(False)
    for layer in (contextual.base, contextual.temperature, contextual.score):
        layer.weight.normal_(std=0.3)
    return {
        "fixed": FixedCombiner(4, 0.4, typical / 4),
        "adaptive": AdaptiveCombiner(network, typical / 4),
        "distance decay": DistanceDecayCombiner(typical, k=5),
        "contextual": ContextualCombiner(contextual),
    }


def make_table() -> EntryTable:
    """Random tokens, log-probabilities and sources of all entries."""
    vectors = torch.nn.functional.normalize(torch.randn(50, 12), dim=1).mul(127).round().to(torch.int8)
    return EntryTable(
        torch.randint(0, VOCABULARY, (ENTRIES,)),
        -3 * torch.rand(ENTRIES),
        torch.randint(0, 50, (ENTRIES,), dtype=torch.int32),
        vectors,
        DeviceSourceProjection(torch.randn(20), torch.randn(20, 12)),
    )


def make_context(logits: torch.Tensor, sentences: int) -> StepContext:
    """A step whose rows belong to consecutive sentences, with random sources."""
    rows = torch.arange(sentences).repeat_interleave(len(logits) // sentences)
    return StepContext(logits, Sources(torch.randn(sentences, 20)), rows)
