"""A linear compactor that keeps the neighbours of the full space; see README.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor, nn

from ibidem.compact import LinearCompactor, store_compactor
from ibidem.learn.extraction import make_batches
from ibidem.memory import KeyCoding, SourceProjection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.model import BaseModel
    from ibidem.text import Pair

FULL, HARD, RANDOM = 32, 16, 256
BATCH = 192
MINE_EVERY = 1250
# The share of the entries' median distance that is the temperature, and the weight of the likelihood.
TEMPERATURE, LIKELIHOOD = 0.15, 0.3
# The largest weight of a squared distance that still hides a candidate.
HIDDEN = 1e9


@dataclass(frozen=True)
class Settings:
    """Settings of the training: dimension of the space, updates, states to train on, and the seed."""

    dimension: int
    updates: int
    anchors: int
    seed: int


@dataclass(frozen=True)
class Entries:
    """States [n, d], their tokens [n] and sentences [n], and the mean encoder state of each sentence [sentences, d]."""

    states: Tensor
    values: Tensor
    sentences: Tensor
    source_means: Tensor


def train(model: BaseModel, pairs: Sequence[Pair], output: Path, settings: Settings) -> None:
    """Train a compactor and a source projection, and write both files.

    Args:
        model: The base model.
        pairs: General text.
        output: The folder of the files.
        settings: The settings.
    """
    torch.manual_seed(settings.seed)
    entries = extract(model, pairs)
    mean = entries.states.mean(dim=0)
    projection = train_projection(entries, mean, settings).cpu()
    compactor = LinearCompactor("pca", projection.T.contiguous(), mean.cpu())
    coding = KeyCoding.fit(compactor(entries.states[torch.randperm(len(entries.states))[:65536]].cpu()).numpy())
    notes = {"model": model.name, "model_fingerprint": model.fingerprint}
    (output / "compactor.safetensors").write_bytes(store_compactor(compactor, notes, coding))
    sources = SourceProjection.fit(entries.source_means.cpu().numpy())
    (output / "source_projection.safetensors").write_bytes(save(sources.tensors()))


def extract(model: BaseModel, pairs: Sequence[Pair]) -> Entries:
    """Compute the states of all target tokens of sentence pairs, in the memory of the model's device."""
    sources = model.tokens.encode_sources(pair.source for pair in pairs)
    targets = model.tokens.encode_targets(pair.target for pair in pairs)
    states, values, sentences, means = [], [], [], []
    done = 0
    for rows in make_batches(sources, targets, 4096):
        found = model.states([sources[i] for i in rows], [targets[i] for i in rows])
        states.append(found.keys.float())
        values.append(found.values)
        numbers = torch.arange(done, done + len(rows))
        sentences.append(numbers.repeat_interleave(torch.tensor(found.lengths)))
        means.append(found.source_means)
        done += len(rows)
    return Entries(*(torch.cat(part).to(model.device) for part in (states, values, sentences, means)))


def half_whitened(states: Tensor, dimension: int) -> Tensor:
    """Return a PCA [d, dimension] whose components are divided by the fourth root of their variance."""
    covariance = (states.T @ states / len(states)).double()
    variances, directions = torch.linalg.eigh(covariance)
    largest = variances.argsort(descending=True)[:dimension]
    matrix = directions[:, largest] * (variances[largest] / variances[largest[0]]) ** -0.25
    scale = (covariance.trace() / (matrix.T @ covariance @ matrix).trace()).sqrt()
    whitened: Tensor = (matrix * scale).float()
    return whitened


def search(queries: Tensor, keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the squared distances and numbers [q, count] of the nearest keys, by exact search."""
    squares = keys.square().sum(dim=1)
    found = []
    for rows in torch.split(queries, 1024):
        distances, numbers = rows.new_empty(len(rows), 0), rows.new_empty(len(rows), 0, dtype=torch.long)
        for start in range(0, len(keys), 1 << 17):
            scores = torch.addmm(squares[start : start + (1 << 17)], rows, keys[start : start + (1 << 17)].T, alpha=-2)
            near, places = scores.topk(min(count, scores.shape[1]), dim=1, largest=False)
            distances, numbers = torch.cat([distances, near], 1), torch.cat([numbers, places + start], 1)
            distances, order = distances.topk(min(count, distances.shape[1]), dim=1, largest=False)
            numbers = numbers.gather(1, order)
        found.append((distances + rows.square().sum(dim=1, keepdim=True), numbers))
    return torch.cat([near for near, _ in found]).clamp_min(0), torch.cat([numbers for _, numbers in found])


def nearest_of_others(entries: Entries, anchors: Tensor, space: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` nearest entries of other sentences for each anchor, in a space [n, c]."""
    distances, numbers = search(space[anchors], space, count + 16)
    own = entries.sentences[numbers] == entries.sentences[anchors][:, None]
    distances, order = distances.masked_fill(own, HIDDEN).topk(count, dim=1, largest=False)
    return distances, numbers.gather(1, order)


def train_projection(entries: Entries, mean: Tensor, settings: Settings) -> Tensor:
    """Train the map [d, dimension] of centred states."""
    states = entries.states - mean
    device = states.device
    anchors = torch.randperm(len(states))[: settings.anchors].sort().values.to(device)
    full_distances, full = nearest_of_others(entries, anchors, states, FULL)
    temperature = TEMPERATURE * float(full_distances[:, min(8, FULL - 1)].median())
    matrix = nn.Parameter(half_whitened(states, settings.dimension))
    log_factor = nn.Parameter(torch.zeros((), device=device))
    groups = [{"params": [matrix], "lr": 3e-4}, {"params": [log_factor], "lr": 1e-2}]
    optimizer = torch.optim.Adam(groups)
    draw = np.random.default_rng(settings.seed)
    hard = full[:, :HARD]
    for update in range(settings.updates):
        if update % MINE_EVERY == 0:
            with torch.no_grad():
                hard = nearest_of_others(entries, anchors, states @ matrix, HARD)[1]
        optimizer.param_groups[0]["lr"] = 3e-4 * (1 - update / settings.updates) + 1e-5
        chosen = torch.from_numpy(draw.choice(len(anchors), min(BATCH, len(anchors)), replace=False)).to(device)
        common = torch.from_numpy(draw.integers(0, len(states), RANDOM)).to(device).expand(len(chosen), -1)
        candidates = torch.cat([full[chosen], hard[chosen], common], dim=1)
        loss = projection_loss(entries, states, anchors[chosen], candidates, matrix, (temperature, log_factor))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if update % 100 == 0:
            print(f"update {update}: loss {float(loss):.4f}", flush=True)
    return matrix.detach()


def projection_loss(
    entries: Entries,
    states: Tensor,
    anchors: Tensor,
    candidates: Tensor,
    matrix: Tensor,
    temperatures: tuple[float, Tensor],
) -> Tensor:
    """Return the KL divergence from the full space's neighbour weights, plus the likelihood of the true tokens."""
    temperature, log_factor = temperatures
    queries, keys = states[anchors], states[candidates]
    ordered = candidates.sort(dim=1)
    repeated = torch.zeros_like(candidates, dtype=torch.bool)
    repeated[:, 1:] = ordered.values[:, 1:] == ordered.values[:, :-1]
    hidden = torch.zeros_like(repeated).scatter_(1, ordered.indices, repeated)
    hidden |= entries.sentences[candidates] == entries.sentences[anchors][:, None]
    full = (queries[:, None] - keys).square().sum(dim=2)
    target = (-full / temperature).masked_fill(hidden, -HIDDEN).softmax(dim=1)
    compact = (queries @ matrix)[:, None] - keys @ matrix
    scores = -compact.square().sum(dim=2) / (temperature * log_factor.exp())
    log_weights = scores.masked_fill(hidden, -HIDDEN).log_softmax(dim=1)
    divergence = (target * (target.clamp_min(1e-12).log() - log_weights)).sum(dim=1).mean()
    right = entries.values[candidates] == entries.values[anchors][:, None]
    likelihood = (log_weights.exp() * right).sum(dim=1).clamp_min(1e-3).log().mean()
    return divergence - LIKELIHOOD * likelihood
