"""Full fine-tuning of the base model on a domain, a baseline for memories."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ibidem.learn import make_batches
from ibidem.model import pad_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.model import BaseModel

_IGNORED = -100


@dataclass(frozen=True)
class FineTuningSettings:
    """Settings of AdamW with a linear warm-up and label smoothing; the weights with the lowest dev loss are kept.

    Attributes:
        updates: Maximum number of updates.
        learning_rate: Learning rate after the warm-up.
        warmup: Number of updates of the warm-up.
        label_smoothing: Probability mass that is spread over all tokens.
        weight_decay: Weight decay.
        clip: Maximum norm of the gradient.
        judge_every: Updates between two measurements of the dev loss.
        patience: Training ends after this many measurements without a lower loss.
        seed: Seed of the order of batches and of dropout.
    """

    updates: int = 4000
    learning_rate: float = 1e-4
    warmup: int = 200
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    judge_every: int = 200
    patience: int = 10
    seed: int = 1


class Encoded(NamedTuple):
    """Sentence pairs as token ids, in batches.

    Attributes:
        sources: Token ids of each source.
        targets: Token ids of each target.
        batches: The rows of each batch.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    batches: list[list[int]]

    @classmethod
    def of(cls, model: BaseModel, sources: Sequence[str], targets: Sequence[str], batch_tokens: int) -> Encoded:
        """Encode pairs and leave out those that are too long for the model.

        Args:
            model: Model whose tokens are used.
            sources: Source sentences.
            targets: A translation for each, in the same order.
            batch_tokens: Maximum number of tokens in a batch.
        """
        tokens = model.tokens
        encoded = zip(tokens.encode_sources(sources), tokens.encode_targets(targets), strict=True)
        kept = [(s, t) for s, t in encoded if len(s) <= tokens.max_source_length and len(t) <= tokens.max_target_length]
        first, second = [source for source, _ in kept], [target for _, target in kept]
        return cls(first, second, make_batches(first, second, batch_tokens))

    def shuffled(self, seed: int) -> Iterator[list[int]]:
        """Yield the batches without end, in a new order each time.

        Args:
            seed: Seed of the orders.

        Yields:
            The rows of a batch.
        """
        random = np.random.default_rng(seed)
        while True:
            for number in random.permutation(len(self.batches)):
                yield self.batches[number]


def fine_tune(model: BaseModel, train: Encoded, dev: Encoded, settings: FineTuningSettings) -> dict[str, Any]:
    """Train all weights of the model in place; on CUDA the forward pass runs in bfloat16.

    Args:
        model: Model to train; afterwards it has the weights with the lowest dev loss.
        train: Training pairs.
        dev: Pairs on which the loss is measured.
        settings: Settings of the training.

    Returns:
        Number of updates, the update and loss (nats a token) of the kept weights, all losses, and seconds.
    """
    network: nn.Module = model.network
    torch.manual_seed(settings.seed)
    network.requires_grad_(True)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    batches, started = train.shuffled(settings.seed), time.perf_counter()
    best, best_loss, best_update, stale = _copy(network), _measure_dev(model, dev), 0, 0
    update, history = 0, [[0, best_loss]]
    while stale < settings.patience:
        over = update >= settings.updates
        if update and (over or update % settings.judge_every == 0):
            loss = _measure_dev(model, dev)
            history.append([update, loss])
            stale += 1
            if loss < best_loss:
                best, best_loss, best_update, stale = _copy(network), loss, update, 0
        if over:
            break
        update += 1
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, update / settings.warmup)
        _step(model, train, next(batches), optimizer, settings)
    network.load_state_dict(best)
    network.eval().requires_grad_(False)
    seconds = time.perf_counter() - started
    return {
        "updates": update,
        "best_update": best_update,
        "loss": best_loss,
        "history": history,
        "training_seconds": seconds,
    }


def measure_loss(model: BaseModel, text: Encoded, rows: Sequence[int], smoothing: float = 0.0) -> tuple[Tensor, int]:
    """Measure the cross-entropy of some pairs.

    Args:
        model: Model, in training or evaluation mode.
        text: The pairs.
        rows: Rows of the pairs that form the batch.
        smoothing: Label smoothing, from 0 to 1.

    Returns:
        The loss summed over all target tokens, in nats, with its gradient; and the number of target tokens.
    """
    tokens, device = model.tokens, model.device
    targets = [text.targets[row] for row in rows]
    sources, mask = pad_ids([text.sources[row] for row in rows], tokens.pad, device)
    inputs, _ = pad_ids([[*tokens.start, *ids[:-1]] for ids in targets], tokens.pad, device)
    prompt = [_IGNORED] * (len(tokens.start) - 1)
    labels, _ = pad_ids([[*prompt, *ids] for ids in targets], _IGNORED, device)
    mixed = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    with mixed:
        logits = model.network(input_ids=sources, attention_mask=mask, decoder_input_ids=inputs, use_cache=False).logits
    loss = cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten(),
        ignore_index=_IGNORED,
        label_smoothing=smoothing,
        reduction="sum",
    )
    return loss, sum(map(len, targets))


def _step(
    model: BaseModel, text: Encoded, rows: list[int], optimizer: torch.optim.Optimizer, settings: FineTuningSettings
) -> None:
    model.network.train()
    loss, tokens = measure_loss(model, text, rows, settings.label_smoothing)
    optimizer.zero_grad(set_to_none=True)
    (loss / tokens).backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.network.parameters(), settings.clip)
    optimizer.step()


def _measure_dev(model: BaseModel, text: Encoded) -> float:
    """Return the cross-entropy of a whole text in nats a token."""
    model.network.eval()
    with torch.no_grad():
        parts = [measure_loss(model, text, rows) for rows in text.batches]
    return float(sum(loss for loss, _ in parts)) / sum(tokens for _, tokens in parts)


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
