"""Fine-tuning of a base model, of all weights or of adapters, with a dev set that chooses, and checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ibidem.errors import ModelError, UsageError
from ibidem.learn.adapt.adapters import Adapters
from ibidem.learn.adapt.training_text import Batches, EncodedText, as_lists
from ibidem.memory import make_directory, rename, temporary_path
from ibidem.model import pad_ids
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ibidem.model import BaseModel

CHECKPOINT = "checkpoint.safetensors"
_IDENTITY, _STATE = "identity", "state"
_IGNORED = -100
_CHECKPOINT_SECONDS = 300.0
# Writing checkpoints takes at most about this share of the time.
_CHECKPOINT_SHARE = 0.05
# The learning rate of the last update, as a share of the highest.
_FINAL_RATE = 0.02
# The most padded tokens of a forward pass by default: larger ones are faster on a GPU, and need more memory.
_FORWARD_TOKENS = {"cpu": 4096, "cuda": 12_000}


@dataclass(frozen=True)
class AdaptSettings:
    """Settings of fine-tuning: AdamW, a linear warm-up and decay, label smoothing, and averaged weights.

    Attributes:
        updates: The most updates.
        passes: The most passes over the text; with few pairs they end the training before `updates`.
        batch_tokens: Padded tokens, source and target together, of an update.
        forward_tokens: The most padded tokens of one forward pass, which bounds the memory; an update adds up the
            gradients of several. none takes 4096 on a CPU and 12000 on a GPU.
        learning_rate: The highest learning rate; use 1e-4 or less for models with 300 million weights or more.
        warmup: The share of the updates in which the learning rate rises; then it falls linearly.
        label_smoothing: The probability that is spread over all tokens.
        weight_decay: The weight decay of AdamW.
        clip: The largest norm of the gradient.
        averaged: The share of the updates, at the end, after which weights are added to an average.
        measurements: How often the dev loss is measured.
        patience: Training ends after this many measurements without a lower dev loss.
        held_out: The most pairs of the text that are held out where there is no dev set.
        general_ratio: Pairs of general text for each pair of the domain.
        bfloat16: Multiply in bfloat16; none does so on a GPU and on a CPU with instructions for it.
        lora_rank: The rank of low-rank adapters (LoRA), which are trained instead of the weights and then merged into
            them; 0 trains all weights. Adapters need a higher learning rate, such as 4e-3 for the shipped model.
        lora_scale: The factor of the adapters' products, alpha / rank.
        seed: The seed of the order of pairs, of dropout, of adapters, and of held-out pairs.

    Raises:
        UsageError: A setting is invalid.

    Examples:
        >>> AdaptSettings(updates=500, learning_rate=2e-4).patience
        5
    """

    updates: int = 2200
    passes: float = 10.0
    batch_tokens: int = 24_000
    forward_tokens: int | None = None
    learning_rate: float = 4e-4
    warmup: float = 0.1
    label_smoothing: float = 0.1
    weight_decay: float = 0.0
    clip: float = 1.0
    averaged: float = 1 / 3
    measurements: int = 20
    patience: int = 5
    held_out: int = 1000
    general_ratio: float = 1.0
    bfloat16: bool | None = None
    lora_rank: int = 0
    lora_scale: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "measurements", "patience", "held_out"):
            if getattr(self, name) < 1:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give 1 or more.")
        if self.forward_tokens is not None and self.forward_tokens < 1:
            raise UsageError(f"Invalid forward_tokens {self.forward_tokens}: give 1 or more, or none.")
        for name in ("updates", "weight_decay", "general_ratio", "lora_rank"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give 0 or more.")
        for name in ("passes", "learning_rate", "clip", "lora_scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give more than 0.")
        for name in ("warmup", "averaged", "label_smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give a share from 0 to 1.")
        if not 0 <= self.seed < 1 << 31:
            raise UsageError(f"Invalid seed {self.seed}: give one from 0 to {(1 << 31) - 1}.")

    def forward_tokens_on(self, device: torch.device) -> int:
        """Return the most padded tokens of one forward pass.

        Args:
            device: The device of the training.
        """
        return self.forward_tokens or min(_FORWARD_TOKENS[device.type], self.batch_tokens)

    def rate(self, update: int, total: int) -> float:
        """Return the learning rate of an update.

        Args:
            update: The number of the update, from 1.
            total: The number of updates of the schedule.

        Examples:
            >>> settings = AdaptSettings(learning_rate=1.0, warmup=0.5)
            >>> [round(settings.rate(update, 4), 2) for update in (1, 2, 3, 4)]
            [0.5, 1.0, 0.5, 0.02]
        """
        warm = max(1, round(self.warmup * total))
        left = (total - update) / max(1, total - warm)
        return self.learning_rate * (update / warm if update <= warm else max(_FINAL_RATE, left))


@dataclass(frozen=True)
class Measurement:
    """What was measured after some updates.

    Attributes:
        update: The number of updates so far.
        updates: The number of updates of the schedule.
        loss: The mean training loss since the last measurement, with label smoothing; None before the first update.
        dev_loss: The dev loss of the weights, in nats a token.
        average_loss: The dev loss of the averaged weights; None where there are none yet.
        tokens_per_second: Padded tokens trained a second, the time of measurements excluded; None before the first.
        seconds_left: The time to the end of the schedule; None before the first update.
    """

    update: int
    updates: int
    loss: float | None
    dev_loss: float
    average_loss: float | None
    tokens_per_second: float | None
    seconds_left: float | None


@dataclass
class _Run:
    """All that changes from one update to the next, besides the tensors.

    Attributes:
        update: The number of updates so far.
        number: The number of the pass over the text.
        place: The number of the next update in this pass.
        averaged: The number of weights in the average.
        best_update: The update of the kept weights.
        best_loss: Their dev loss.
        best_averaged: Whether they are an average.
        stale: The number of measurements since then.
        losses: The training losses since the last measurement, and their tokens.
        tokens: The number of padded tokens so far.
        seconds: The time of the updates, over all interrupted runs.
        measuring_seconds: The time of the measurements.
        history: All measurements.
    """

    update: int = 0
    number: int = 0
    place: int = 0
    averaged: int = 0
    best_update: int = 0
    best_loss: float = math.inf
    best_averaged: bool = False
    stale: int = 0
    losses: list[tuple[float, int]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    history: list[dict[str, float | None]] = field(default_factory=list)


def fine_tune(
    model: BaseModel,
    train: EncodedText,
    dev: EncodedText,
    settings: AdaptSettings,
    *,
    general: EncodedText | None = None,
    workspace: Path | None = None,
    identity: str = "",
    progress: Progress = silent,
    report: Callable[[Measurement], None] = lambda _: None,
) -> dict[str, Any]:
    """Train a model in place, all weights or adapters that are then merged, and keep those with the lowest dev loss.

    The kept weights are those of the base model, those after some updates, or an average over the last updates. On one
    machine with one number of threads, a run that was killed and resumed gives the weights of an uninterrupted one on
    a CPU.

    Args:
        model: The model, with float32 weights. Load it again before it decodes: it may have cached the old weights.
        train: The text of the domain.
        dev: Text on which the loss is measured.
        settings: The settings of the training.
        general: General text that is mixed in.
        workspace: The folder of the checkpoint, from which a killed run is resumed; None writes none.
        identity: What the run depends on besides the settings; a checkpoint of another identity is not used.
        progress: Receives the number of padded tokens.
        report: Receives each measurement.

    Returns:
        The numbers of updates and passes, the update and dev loss (nats a token) of the kept weights, the dev loss of
        the base model, all measurements (None for a loss that is not a finite number), and seconds.

    Raises:
        ModelError: The dev loss of the base model is not a finite number, or it has no layers for adapters.

    Examples:
        >>> from ibidem.learn import AdaptSettings, EncodedText, fine_tune
        >>> from ibidem.model import load_model
        >>> from ibidem.text import Corpus
        >>> model = load_model(dtype="float32")
        >>> train, dev = (EncodedText.read(Corpus([name]), model.tokens) for name in ("train.tsv", "dev.tsv"))
        >>> report = fine_tune(model, train, dev, AdaptSettings(updates=2, batch_tokens=256))
        >>> report["dev_loss"] <= report["dev_loss_before"]
        True
    """
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        trainer = _Trainer(model, train, dev, settings, general)
        trainer.open(workspace, f"{identity} {asdict(settings)} {trainer.forward_tokens}")
        return trainer.train(progress, report)


def measure_loss(
    model: BaseModel, text: EncodedText, rows: Sequence[int], smoothing: float = 0.0, *, bfloat16: bool = False
) -> Tensor:
    """Compute the cross-entropy of some pairs.

    Args:
        model: The model, in training or evaluation mode.
        text: The pairs.
        rows: The rows of the pairs that form the batch.
        smoothing: The label smoothing, from 0 to 1.
        bfloat16: Multiply in bfloat16.

    Returns:
        The loss summed over all target tokens, in nats, with its gradient.
    """
    tokens, device = model.tokens, model.device
    targets = as_lists([text.targets[row] for row in rows])
    sources, mask = pad_ids(as_lists([text.sources[row] for row in rows]), tokens.pad, device)
    inputs, _ = pad_ids([[*tokens.start, *ids[:-1]] for ids in targets], tokens.pad, device)
    prompt = [_IGNORED] * (len(tokens.start) - 1)
    labels, _ = pad_ids([[*prompt, *ids] for ids in targets], _IGNORED, device)
    with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
        logits = model.network(input_ids=sources, attention_mask=mask, decoder_input_ids=inputs, use_cache=False).logits
    return cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten(),
        ignore_index=_IGNORED,
        label_smoothing=smoothing,
        reduction="sum",
    )


def measure_text(model: BaseModel, text: EncodedText, tokens: int, *, bfloat16: bool = False) -> float:
    """Compute the cross-entropy of a whole text in nats a token.

    Args:
        model: The model; it is set to evaluation mode.
        text: The text.
        tokens: The most padded tokens of a forward pass.
        bfloat16: Multiply in bfloat16.
    """
    model.network.eval()
    with torch.no_grad():
        losses = [measure_loss(model, text, rows, bfloat16=bfloat16) for rows in text.batches(tokens)]
    return float(torch.stack(losses).double().sum()) / text.target_tokens


def prefers_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for products in bfloat16.

    Args:
        device: The device.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # torch has no public name for these; without them the answer is no.
    checks = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("avx512_bf16", "amx_tile"))
    return any(bool(check()) for check in checks)


class _Trainer:
    """A model with its text, optimiser, average and best weights."""

    def __init__(
        self,
        model: BaseModel,
        train: EncodedText,
        dev: EncodedText,
        settings: AdaptSettings,
        general: EncodedText | None,
    ) -> None:
        self.model, self.dev, self.settings = model, dev, settings
        self.forward_tokens = settings.forward_tokens_on(model.device)
        sizes = (settings.batch_tokens, self.forward_tokens)
        self.batches = Batches.of(train, general, settings.general_ratio, sizes, settings.seed)
        self.per_pass = len(self.batches.of_pass(0))
        self.total = min(settings.updates, max(1, round(settings.passes * self.per_pass)))
        self.measure_every = max(1, math.ceil(self.total / settings.measurements))
        self.average_from = self.total - round(settings.averaged * self.total)
        self.bfloat16 = prefers_bfloat16(model.device) if settings.bfloat16 is None else settings.bfloat16
        self.adapters: Adapters | None = None
        if settings.lora_rank:
            self.adapters = Adapters(model.network, settings.lora_rank, settings.lora_scale, settings.seed)
            self.weights = {name: weight for name, weight in model.network.named_parameters() if weight.requires_grad}
        else:
            self.weights = trained_weights(model.network)
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=settings.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
            fused=model.device.type == "cuda",
        )
        self.run = _Run()
        self.best = self._copy()
        self.average: dict[str, Tensor] = {}
        self.workspace: Path | None = None
        self.identity = ""
        self._saved, self._saving_seconds = time.monotonic(), 0.0

    def open(self, workspace: Path | None, identity: str) -> None:
        """Load the checkpoint of a killed run, if there is one of the same identity."""
        self.workspace, self.identity = workspace, identity
        if workspace is None:
            return
        make_directory(workspace)
        found = _read_checkpoint(workspace / CHECKPOINT, self.model.device, identity)
        if found is None or not self._fits(found[0]):
            return
        tensors, self.run = found
        self._assign(tensors["weights"])
        self.best, self.average = tensors["best"], tensors.get("average", {})
        for part in tensors.keys() - {"weights", "best", "average"}:
            for name, tensor in tensors[part].items():
                self.optimizer.state[self.weights[name]][part] = tensor

    def _fits(self, tensors: dict[str, dict[str, Tensor]]) -> bool:
        """Return whether a checkpoint has a tensor of the right shape for each weight."""
        shapes = {name: weight.shape for name, weight in self.weights.items()}
        return {"weights", "best"} <= tensors.keys() and all(
            part == "step" or {name: tensor.shape for name, tensor in tensors[part].items()} == shapes
            for part in tensors
        )

    def train(self, progress: Progress, report: Callable[[Measurement], None]) -> dict[str, Any]:
        """Run the updates that are left."""
        run, settings = self.run, self.settings
        if not run.history:
            self._measure(report)
            if run.best_loss == math.inf:
                raise ModelError(
                    f"The dev loss of {self.model.name} is not a finite number before the training: check the model, "
                    "or multiply in float32 with --set bfloat16=false."
                )
        ordered = self.batches.from_place(run.number, run.place)
        while run.update < self.total and run.stale < settings.patience:
            run.number, run.place, parts = next(ordered)
            started = time.perf_counter()
            self._step(parts)
            if run.update > self.average_from:
                self._add_to_average()
            run.seconds += time.perf_counter() - started
            progress("Training", run.update / self.total, run.tokens, "tokens")
            if run.update % self.measure_every == 0 or run.update == self.total:
                self._measure(report)
                self._save()
            elif time.monotonic() - self._saved > max(_CHECKPOINT_SECONDS, self._saving_seconds / _CHECKPOINT_SHARE):
                self._save()
        self._assign(self.best)
        if self.adapters is not None:
            self.adapters.merge()
        self.model.network.eval().requires_grad_(False)
        return {
            "trained_weights": sum(weight.numel() for weight in self.weights.values()),
            "updates": run.update,
            "scheduled_updates": self.total,
            "passes": round(run.update / self.per_pass, 2),
            "best_update": run.best_update,
            "averaged": run.best_averaged,
            "dev_loss": run.best_loss,
            "dev_loss_before": run.history[0]["dev_loss"],
            "tokens": run.tokens,
            "bfloat16": self.bfloat16,
            "training_seconds": run.seconds + run.measuring_seconds,
            "history": run.history,
        }

    def _step(self, parts: list[list[int]]) -> None:
        run, settings, text = self.run, self.settings, self.batches.text
        run.update += 1
        # A seed for each update: a resumed run draws what an uninterrupted one draws.
        torch.manual_seed(int(np.random.SeedSequence([settings.seed, run.update]).generate_state(1)[0]))
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(run.update, self.total)
        self.model.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(len(text.targets[row]) for rows in parts for row in rows)
        summed = torch.zeros((), device=self.model.device)
        for rows in parts:
            loss = measure_loss(self.model, text, rows, settings.label_smoothing, bfloat16=self.bfloat16)
            (loss / tokens).backward()  # type: ignore[no-untyped-call]
            summed += loss.detach()
            lengths = [(len(text.sources[row]), len(text.targets[row])) for row in rows]
            run.tokens += len(rows) * (max(source for source, _ in lengths) + max(target for _, target in lengths))
        nn.utils.clip_grad_norm_(self.weights.values(), settings.clip)
        self.optimizer.step()
        run.losses.append((float(summed), tokens))

    def _measure(self, report: Callable[[Measurement], None]) -> None:
        """Measure the dev loss, and keep the weights if it is the lowest."""
        run, started = self.run, time.perf_counter()
        dev_loss = measure_text(self.model, self.dev, self.forward_tokens, bfloat16=self.bfloat16)
        average_loss = None
        run.stale += 1
        self._keep(dev_loss, averaged=False)
        if run.averaged:
            with self._averaged():
                average_loss = measure_text(self.model, self.dev, self.forward_tokens, bfloat16=self.bfloat16)
                self._keep(average_loss, averaged=True)
        run.measuring_seconds += time.perf_counter() - started
        trained = sum(tokens for _, tokens in run.losses)
        loss = sum(loss for loss, _ in run.losses) / trained if trained else None
        run.losses = []
        done = run.seconds + run.measuring_seconds
        measured = Measurement(
            update=run.update,
            updates=self.total,
            loss=loss,
            dev_loss=dev_loss,
            average_loss=average_loss,
            tokens_per_second=run.tokens / run.seconds if run.update else None,
            seconds_left=done / run.update * (self.total - run.update) if run.update else None,
        )
        figures = ("update", "loss", "dev_loss", "average_loss")
        run.history.append({name: _finite(getattr(measured, name)) for name in figures})
        report(measured)

    def _keep(self, loss: float, *, averaged: bool) -> None:
        run = self.run
        if loss < run.best_loss:
            run.best_loss, run.best_update, run.best_averaged, run.stale = loss, run.update, averaged, 0
            self.best = self._copy()

    @torch.no_grad()
    def _add_to_average(self) -> None:
        run = self.run
        run.averaged += 1
        if run.averaged == 1:
            self.average = self._copy()
            return
        for name, weight in self.weights.items():
            self.average[name].lerp_(weight, 1 / run.averaged)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Give the network the averaged weights inside a `with` block."""
        own = self._copy()
        self._assign(self.average)
        try:
            yield
        finally:
            self._assign(own)

    def _copy(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def _assign(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(weights[name])

    def _save(self) -> None:
        """Replace the checkpoint atomically."""
        if self.workspace is None:
            return
        started = time.monotonic()
        parts = {"weights": self.weights, "best": self.best, "average": self.average}
        for name, weight in self.weights.items():
            for part, tensor in self.optimizer.state[weight].items():
                parts.setdefault(part, {})[name] = tensor
        file = self.workspace / CHECKPOINT
        save_file(
            {f"{part}/{name}": tensor.detach() for part, tensors in parts.items() for name, tensor in tensors.items()},
            temporary_path(file),
            metadata={_IDENTITY: self.identity, _STATE: json.dumps(asdict(self.run))},
        )
        with temporary_path(file).open("rb+") as written:
            os.fsync(written.fileno())
        rename(temporary_path(file), file)
        self._saved = time.monotonic()
        self._saving_seconds = self._saved - started


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can hold; None for infinity and NaN."""
    return value if value is None or math.isfinite(value) else None


def trained_weights(network: nn.Module) -> dict[str, Tensor]:
    """Make the weights of a network trainable, except fixed position embeddings.

    Args:
        network: A transformers model.

    Returns:
        The trainable weights by name; a weight that several layers share has one name.
    """
    network.requires_grad_(True)
    for module in network.modules():
        # Marian and FSMT have their sinusoidal positions as parameters.
        if "Sinusoidal" in type(module).__name__:
            module.requires_grad_(False)
    return {name: weight for name, weight in network.named_parameters() if weight.requires_grad}


def _read_checkpoint(
    file: Path, device: torch.device, identity: str
) -> tuple[dict[str, dict[str, Tensor]], _Run] | None:
    """Read the tensors of a checkpoint by part and name; None where there is none of this identity."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(file, framework="pt", device=str(device)) as opened:
            notes = opened.metadata() or {}
            if notes.get(_IDENTITY) != identity:
                return None
            for key in opened.keys():  # noqa: SIM118 (not a mapping)
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = opened.get_tensor(key)
        return parts, _Run(**json.loads(notes[_STATE]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
