"""Training of the base model in plain torch: bf16, resumable, with BLEU on the development set."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sacrebleu
import torch
from batches import Ragged, make_batches, to_tensors
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, MarianConfig, MarianMTModel
from vocabulary import EOS, PAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from settings import Architecture, Settings, Training


def build_model(architecture: Architecture, vocabulary_size: int) -> MarianMTModel:
    """Make a Marian model with one shared embedding for source, target and output."""
    config = MarianConfig(
        vocab_size=vocabulary_size,
        d_model=architecture.d_model,
        encoder_layers=architecture.encoder_layers,
        decoder_layers=architecture.decoder_layers,
        encoder_attention_heads=architecture.heads,
        decoder_attention_heads=architecture.heads,
        encoder_ffn_dim=architecture.ffn,
        decoder_ffn_dim=architecture.ffn,
        dropout=architecture.dropout,
        attention_dropout=architecture.attention_dropout,
        activation_dropout=0.0,
        activation_function="swish",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        max_position_embeddings=architecture.max_positions,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
        decoder_start_token_id=PAD,
    )
    model = MarianMTModel(config)
    initialise(model)
    model.generation_config = GenerationConfig(
        num_beams=4,
        max_length=architecture.max_positions,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=EOS,
        bad_words_ids=[[PAD]],
    )
    return model


# The gain of the layers at the end of residual branches. With 1 the encoder nearly collapsed during warm-up; the README
# has the runs behind 0.3.
BRANCH_GAIN = 0.3


@torch.no_grad()
def initialise(model: MarianMTModel) -> None:
    """Initialise the weights: Xavier, smaller at the end of each residual branch; embeddings of unit length."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not model.lm_head:
            gain = BRANCH_GAIN if name.endswith(("out_proj", "fc2")) else 1.0
            nn.init.xavier_uniform_(module.weight, gain=gain)
            nn.init.zeros_(module.bias)
    embedding = model.get_input_embeddings().weight
    nn.init.normal_(embedding, std=embedding.shape[1] ** -0.5)
    embedding[PAD].zero_()


class CollapsedError(RuntimeError):
    """Raised when the encoder collapses; a lower learning rate or a longer warm-up is needed."""


def compute_loss(model: MarianMTModel, sources: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Compute the label-smoothed cross-entropy, averaged over the target tokens.

    Args:
        model: The model.
        sources: [n, s] padded token ids.
        targets: [n, t] padded token ids, each with EOS.
        smoothing: The label smoothing.
    """
    inputs = torch.cat([torch.full_like(targets[:, :1], PAD), targets[:, :-1]], dim=1)
    # transformers reads the content of a 2-d mask, which synchronises with the GPU; a 4-d mask is used as it is.
    states = model.model(
        input_ids=sources,
        attention_mask=sources.ne(PAD)[:, None, None, :].expand(-1, 1, sources.shape[1], -1),
        decoder_input_ids=inputs,
        use_cache=False,
    ).last_hidden_state
    logits = model.lm_head(states).float()
    return functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=smoothing
    )


def learning_rate(training: Training, step: int, progress: float) -> float:
    """Return the learning rate of a step: linear warm-up, then linear decay over the run."""
    peak = training.learning_rate - (training.learning_rate - training.final_learning_rate) * progress
    return peak * min(1.0, (step + 1) / training.warmup_steps)


@torch.no_grad()
def translate_greedily(model: MarianMTModel, sources: Ragged, processor: Any) -> list[str]:
    """Translate all sources with greedy search."""
    model.eval()
    rows = np.argsort(sources.lengths, kind="stable")
    outputs: dict[int, str] = {}
    for start in range(0, len(rows), 300):
        part = rows[start : start + 300]
        ids = sources.pad(part, int(sources.lengths[part].max()))
        result = model.generate(
            input_ids=ids, attention_mask=ids.ne(PAD).long(), num_beams=1, max_length=128, do_sample=False
        )
        special = {EOS, PAD}
        for row, sequence in zip(part, result.tolist(), strict=True):
            outputs[int(row)] = processor.decode([token for token in sequence if token not in special])
    return [outputs[i] for i in range(len(rows))]


@dataclass
class State:
    """The state of a run that a resumed run needs besides the data."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    elapsed: float = 0.0
    averaged: int = 0
    epoch_progress: float = 0.0  # progress at the start of the epoch, which selects its corpora
    history: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """Trains until the minutes or steps of the run are used up; `resume` continues a killed run.

    On a GPU the forward and backward passes use bf16; the optimiser updates fp32 weights, which are saved.
    """

    def __init__(self, settings: Settings, model: MarianMTModel, folder: Path, device: torch.device) -> None:
        self.settings = settings
        self.weights = model.to(device)
        self.average = copy.deepcopy(self.weights).eval()
        self.model = copy.deepcopy(self.weights).to(torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.folder = folder
        self.device = device
        self.state = State()
        # A share of the run, and what is called once after it.
        self.snapshot: tuple[float, Callable[[], None]] | None = None
        # Sinusoidal positions are parameters in transformers, but are not trained.
        self._master = [p for p in self.weights.parameters() if p.requires_grad]
        self._live = [p for p in self.model.parameters() if p.requires_grad]
        for parameter in self._master:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer = torch.optim.AdamW(
            self._master, lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=device.type == "cuda"
        )

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    def save(self) -> None:
        """Write the checkpoint under a temporary name and rename it, so that a killed process leaves a complete one."""
        temporary = self._checkpoint.with_suffix(".tmp")
        torch.save(
            {
                "weights": self.weights.state_dict(),
                "average": self.average.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "state": vars(self.state),
            },
            temporary,
        )
        temporary.replace(self._checkpoint)

    def resume(self) -> bool:
        """Load the checkpoint; return whether there is one."""
        if not self._checkpoint.exists():
            return False
        saved = torch.load(self._checkpoint, map_location=self.device, weights_only=True)
        self.weights.load_state_dict(saved["weights"])
        self.average.load_state_dict(saved["average"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.state = State(**saved["state"])
        with torch.no_grad():
            torch._foreach_copy_(self._live, self._master)
        return True

    def progress(self) -> float:
        """Return the share of the run that is done."""
        training = self.settings.training
        return min(1.0, max(self.state.step / training.steps, self.state.elapsed / (60 * training.minutes)))

    def end_in(self, minutes: float) -> None:
        """Let the run end after so many more minutes, or after those of the settings if that is earlier.

        The learning rate follows the new length. If the part of the run that is averaged is still ahead, its average
        starts anew.

        Args:
            minutes: The minutes that are left.
        """
        training = self.settings.training
        total = min(training.minutes, self.state.elapsed / 60 + max(minutes, 1e-3))
        self.settings = replace(self.settings, training=replace(training, minutes=total))
        if self.progress() < training.average_from:
            self.state.averaged = 0

    def run(
        self,
        sources: Ragged,
        targets: Ragged,
        corpus: np.ndarray,
        dev_sources: Ragged,
        dev_references: list[str],
        processor: Any,
        pause_after: float | None = None,
    ) -> bool:
        """Train to the end of the run.

        Args:
            sources: The source sequences.
            targets: The target sequences.
            corpus: [n] the number of each row's corpus.
            dev_sources: The sources of the development set.
            dev_references: The references of the development set.
            processor: The SentencePiece processor.
            pause_after: Minutes after which to stop; None trains to the end.

        Returns:
            False if the run paused before its end. A checkpoint is written in both cases.
        """
        training = self.settings.training
        clock = time.monotonic() - self.state.elapsed
        evaluated = saved = begun = self.state.elapsed
        losses: list[Tensor] = []
        while self.progress() < 1.0:
            random = np.random.default_rng([self.settings.seed, self.state.epoch])
            rows = self._choose_rows(corpus, sources, targets, random)
            batches = make_batches(sources, targets, rows, training.max_tokens, random)[self.state.batch :]
            for batch_sources, batch_targets in to_tensors(sources, targets, batches):
                losses.append(self._step(batch_sources, batch_targets))
                self.state.batch += 1
                self.state.elapsed = time.monotonic() - clock
                progress = self.progress()
                if self.state.step % 500 == 0:
                    self._check_encoder(batch_sources)
                if progress >= training.average_from and self.state.step % 10 == 0:
                    self._add_to_average()
                if self.state.elapsed - evaluated >= 60 * training.evaluate_every_minutes or progress >= 1.0:
                    self._report(torch.stack(losses).mean().item(), dev_sources, dev_references, processor)
                    losses, evaluated = [], self.state.elapsed
                if self.snapshot is not None and self.snapshot[0] <= progress < 1.0:
                    self.snapshot[1]()
                    self.snapshot = None
                if self.state.elapsed - saved >= 60 * training.checkpoint_every_minutes:
                    self.save()
                    saved = self.state.elapsed
                if pause_after is not None and self.state.elapsed - begun >= 60 * pause_after and progress < 1.0:
                    self.save()
                    return False
                if progress >= 1.0:
                    break
            else:
                self.state.epoch += 1
                self.state.batch = 0
                self.state.epoch_progress = self.progress()
        self.save()
        return True

    def _choose_rows(
        self, corpus: np.ndarray, sources: Ragged, targets: Ragged, random: np.random.Generator
    ) -> np.ndarray:
        """Return the rows of an epoch: a share of each corpus that is in use, without long pairs."""
        limit, progress = self.settings.training.max_length, self.state.epoch_progress
        keep = (sources.lengths <= limit) & (targets.lengths <= limit)
        for number, files in enumerate(self.settings.corpora):
            weight = files.weight if progress < files.until else 0.0
            keep &= (corpus != number) | (random.random(len(corpus)) < weight)
        return np.flatnonzero(keep)

    def _step(self, sources: Tensor, targets: Tensor) -> Tensor:
        training = self.settings.training
        self.model.train()
        rate = learning_rate(training, self.state.step, self.progress())
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = compute_loss(self.model, sources, targets, training.label_smoothing)
        torch.autograd.backward(loss)
        with torch.no_grad():
            torch._foreach_copy_([p.grad for p in self._master], [p.grad for p in self._live])
            nn.utils.clip_grad_norm_(self._master, training.clip)
            self.optimizer.step()
            torch._foreach_copy_(self._live, self._master)
        self.model.zero_grad(set_to_none=True)
        self.state.step += 1
        return loss.detach()

    @torch.no_grad()
    def _check_encoder(self, sources: Tensor) -> None:
        """Raise CollapsedError if the encoder gives nearly the same state at every position."""
        self.model.eval()
        states = self.model.get_encoder()(input_ids=sources[:8]).last_hidden_state
        spread = float(states.float().std(dim=1).mean())
        print(json.dumps({"step": self.state.step, "encoder_spread": round(spread, 4)}), flush=True)
        if spread < 0.01:
            raise CollapsedError(
                "the encoder gives the same state at all positions: lower the learning rate, or warm up longer"
            )

    @torch.no_grad()
    def _add_to_average(self) -> None:
        self.state.averaged += 1
        weight = 1.0 / self.state.averaged
        mean = [p for p in self.average.parameters() if p.requires_grad]
        torch._foreach_lerp_(mean, self._master, weight)

    def _report(self, loss: float, dev_sources: Ragged, dev_references: list[str], processor: Any) -> None:
        entry = {
            "step": self.state.step,
            "epoch": self.state.epoch,
            "minutes": round(self.state.elapsed / 60, 2),
            "loss": round(loss, 4),
            "dev_bleu": self.dev_bleu(self.model, dev_sources, dev_references, processor),
        }
        if self.state.averaged:
            entry["dev_bleu_average"] = self.dev_bleu(self.average, dev_sources, dev_references, processor)
        self.state.history.append(entry)
        print(json.dumps(entry), flush=True)

    def dev_bleu(self, model: MarianMTModel, sources: Ragged, references: list[str], processor: Any) -> float:
        """Translate the development set and return its BLEU."""
        hypotheses = translate_greedily(model, sources, processor)
        return round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2)
