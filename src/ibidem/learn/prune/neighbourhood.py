"""The neighbours of every entry of a memory, and what they and the base model say of its token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ibidem.combine import load_combiner, place_combiner
from ibidem.errors import UsageError
from ibidem.learn.prune.covering import Cover
from ibidem.progress import Progress, silent
from ibidem.retrieve import build_index, join, open_sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.memory import Memory
    from ibidem.retrieve import Index

# Neighbours of which some may be gone and k must be left, and entries that are searched for at once.
_SPARE = 2
_ROWS = 1 << 15


class NeighbourGraph(NamedTuple):
    """The nearest entries of every entry, itself left out, nearest first.

    entries [n, K] int32, -1 where there is none; distances [n, K] float32.
    """

    entries: NDArray[np.int32]
    distances: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The neighbours of every entry, and how a combiner weighs them.

    values [n] the tokens; log_probs [n] their log-probabilities by the base model; combiner: on the device where all
    this is weighed.
    """

    surroundings: NeighbourGraph
    values: Tensor
    log_probs: Tensor
    combiner: Combiner
    device: torch.device

    @torch.inference_mode()
    def look(self, entries: NDArray[np.int64], kept: NDArray[np.bool_]) -> Cover:
        """What the kept entries and the base model say of the tokens of some entries [n]."""
        ids = torch.from_numpy(entries).to(self.device)
        near = torch.from_numpy(self.surroundings.entries[entries].astype(np.int64)).to(self.device)
        distances = torch.from_numpy(self.surroundings.distances[entries]).to(self.device)
        there = torch.from_numpy(kept).to(self.device)[near.clamp_min(0)] & (near >= 0)
        distances, order = distances.masked_fill(~there, torch.inf).sort(dim=1, stable=True)
        k = self.combiner.k
        distances, near = distances[:, :k].contiguous(), near.gather(1, order[:, :k])
        values = self.values[near.clamp_min(0)]
        weights = self.combiner.weigh(distances, values)
        agree = (values == self.values[ids][:, None]) & distances.isfinite()
        said = weights.base * self.log_probs[ids].exp() + (weights.neighbours * agree).sum(1)
        nearest = near.gather(1, agree.int().argmax(1, keepdim=True))[:, 0]
        supporters = torch.where(agree.any(1), nearest, -1)
        return Cover(said.float().cpu().numpy(), supporters.cpu().numpy())


def count_needed(k: int) -> int:
    """How many neighbours of an entry must be known to weigh k of them while others go."""
    return _SPARE * k


def build_neighbour_graph(
    memory: Memory, count: int, *, device: torch.device, progress: Progress = silent
) -> NeighbourGraph:
    """Search for every entry, which does not depend on any combiner."""
    index = _open_index(memory, device)
    keys, size = memory.search_keys, memory.entries
    found = NeighbourGraph(np.empty((size, count), np.int32), np.empty((size, count), np.float32))
    # Entries of one token look into the same lists, one after the other.
    order = np.argsort(memory.values(), kind="stable")
    for start in range(0, size, _ROWS):
        own = order[start : start + _ROWS]
        queries = torch.from_numpy(np.asarray(keys.gather(own), np.float32)).to(device)
        near = index.search(queries, count + 1)
        others = _leave_out(near.entries.cpu(), near.distances.float().cpu(), torch.from_numpy(own))
        found.entries[own], found.distances[own] = others[0].numpy(), others[1].numpy()
        progress("Finding neighbours", (start + len(own)) / size, start + len(own), "entries")
    return found


def provide_surroundings(
    memory: Memory, count: int, found: NeighbourGraph | None, *, device: torch.device, progress: Progress
) -> NeighbourGraph:
    """So many nearest entries of each: of those that were found before, or found now."""
    if found is None:
        return build_neighbour_graph(memory, count, device=device, progress=progress)
    if found.entries.shape[0] != memory.entries or found.entries.shape[1] < count:
        raise UsageError(f"The neighbours must be {count} or more of each of {memory.entries} entries: find them anew.")
    return NeighbourGraph(found.entries[:, :count], found.distances[:, :count])


def see_neighbourhood(
    memory: Memory, surroundings: NeighbourGraph | None, device: torch.device, progress: Progress
) -> Neighbourhood:
    """Weigh neighbours that were found before, or now; raises UsageError where no combiner was tuned to do so."""
    combiner = load_combiner(memory)
    if combiner is None:
        raise UsageError(
            f"{memory.path} has no tuned combiner, which tells what is covered: run `ibidem tune -m {memory.path}` "
            "first, or prune by cost-clusters."
        )
    surroundings = provide_surroundings(
        memory, count_needed(combiner.k), surroundings, device=device, progress=progress
    )
    return Neighbourhood(
        surroundings,
        torch.from_numpy(np.asarray(memory.values(), np.int64)).to(device),
        torch.from_numpy(np.asarray(memory.token_log_probs()[memory.rows()], np.float32)).to(device),
        place_combiner(combiner, device),
        device,
    )


def _open_index(memory: Memory, device: torch.device) -> Index:
    """The memory's own index where it has one; else one for this alone, since pruning changes what is searched."""
    if device.type == "cpu" and memory.artefact("index") is not None:
        parts = open_sealed(memory, None, device).parts(memory, np.empty(0, np.int64), device)
        return join(parts, memory.entries, memory.dimension)
    return build_index(memory.search_keys, "auto", seed=memory.manifest.seed, device=device)


def _leave_out(entries: Tensor, distances: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Surroundings [n, K + 1] without the entry itself, or without the last where it was not found: [n, K]."""
    itself = entries == own[:, None]
    itself[:, -1] |= ~itself.any(dim=1)
    shape = len(entries), entries.shape[1] - 1
    return entries[~itself].view(shape).int(), distances[~itself].view(shape)
