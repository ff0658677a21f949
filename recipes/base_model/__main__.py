"""Train the base model of the package: parallel text in, a Hugging Face Marian folder out.

    python recipes/base_model recipes/base_model/config.toml --data DATA --output runs/base

Every stage writes its result to OUTPUT and is skipped if the result exists: the same command resumes a killed run. With
--end-at, a run that has ended goes on until then, and the better of both models is kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from batches import encode
from settings import Settings, read_settings
from training import CollapsedError, Trainer, build_model
from vocabulary import read_pairs, train_vocabulary, write_tokenizer

# New starts, each with half the learning rate, of a run whose encoder collapses.
RETRIES = 2


def main() -> None:
    """Read the arguments of the process and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder that the config's corpora are relative to")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of the results; the model is written to OUTPUT/model"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, help="override the config's minutes of training")
    parser.add_argument("--pause-after", type=float, help="stop after this many minutes; the same command resumes")
    parser.add_argument(
        "--end-at", type=float, metavar="SECONDS", help="end the training at this time, in seconds since 1970"
    )
    parser.add_argument(
        "--snapshot-at",
        type=float,
        default=2.0,
        metavar="SHARE",
        help="write OUTPUT/snapshot after this share of the run",
    )
    arguments = parser.parse_args()
    settings = read_settings(arguments.config)
    if arguments.minutes is not None:
        settings = replace(settings, training=replace(settings.training, minutes=arguments.minutes))
    arguments.output.mkdir(parents=True, exist_ok=True)
    limits = Limits(arguments.pause_after, arguments.end_at, arguments.snapshot_at)
    train(settings, arguments.data, arguments.output, torch.device(arguments.device), limits)


@dataclass(frozen=True)
class Limits:
    """When a run stops.

    Attributes:
        pause_after: Minutes after which to stop; None trains to the end.
        end_at: The time, in seconds since 1970, at which the run ends at the latest; None for the settings' minutes.
        snapshot_at: The share of the run after which the weights are written to `snapshot`; none above 1.
    """

    pause_after: float | None = None
    end_at: float | None = None
    snapshot_at: float = 2.0


def train(settings: Settings, data: Path, output: Path, device: torch.device, limits: Limits) -> None:
    """Run every stage that is not complete.

    Args:
        settings: The recipe.
        data: The folder of the corpora.
        output: The folder of the results.
        device: The device of the training.
        limits: When to stop.
    """
    torch.manual_seed(settings.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    started = time.monotonic()
    texts = [read_pairs(data, files) for files in settings.corpora]
    spm = output / "vocabulary" / "spm.model"
    if not spm.exists():
        weighty = [text for text, files in zip(texts, settings.corpora, strict=True) if files.weight >= 1]
        train_vocabulary(settings, [line for pair in weighty for side in pair for line in side], spm.parent)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    source_texts = [line for sources, _ in texts for line in sources]
    target_texts = [line for _, targets in texts for line in targets]
    corpus = np.repeat(np.arange(len(texts)), [len(sources) for sources, _ in texts])
    sources, targets = encode(spm, source_texts, device), encode(spm, target_texts, device)
    dev_sources, dev_references = read_pairs(data, settings.dev)  # type: ignore[arg-type]
    dev = encode(spm, dev_sources[: settings.dev.sentences], device)
    print(f"{len(corpus):,} pairs, {targets.total:,} target tokens, {time.monotonic() - started:.0f} s to read")

    trainer = start(settings, processor, output, device, limits)
    if trainer.resume():
        print(f"resumed at step {trainer.state.step}", flush=True)
    before = trainer.state.history[-1:] if (output / "model" / "config.json").exists() else []
    references = dev_references[: settings.dev.sentences]
    texts_and_dev = (sources, targets, corpus, dev, references, processor, limits.pause_after)
    for retry in range(RETRIES + 1):
        if limits.end_at is not None:
            trainer.end_in((limits.end_at - time.time()) / 60)
        try:
            finished = trainer.run(*texts_and_dev)
            break
        except CollapsedError as collapse:
            if retry == RETRIES:
                raise
            training = trainer.settings.training
            slower = replace(training, learning_rate=training.learning_rate / 2, minutes=settings.training.minutes)
            print(f"{collapse}; starting again with a learning rate of {slower.learning_rate:g}", flush=True)
            again = replace(settings, seed=settings.seed + retry + 1, training=slower)
            trainer = start(again, processor, output, device, limits)
    if not finished:
        print(f"paused at step {trainer.state.step}, {trainer.progress():.0%} done: the same command resumes")
        return
    last = trainer.state.history[-1]
    print(json.dumps({name: value for name, value in last.items() if name.startswith("dev_bleu")}))
    if before and best_bleu(before[0]) > best_bleu(last):
        print(f"the model from step {before[0]['step']} is better and is kept")
        return
    averaged = last.get("dev_bleu_average", -1.0) >= last["dev_bleu"]
    export(trainer.average if averaged else trainer.weights, trainer, spm, output / "model")


def best_bleu(entry: dict[str, float]) -> float:
    """Return the BLEU of the better weights of an entry of the log."""
    return max(entry["dev_bleu"], entry.get("dev_bleu_average", -1.0))


def start(
    settings: Settings,
    processor: sentencepiece.SentencePieceProcessor,
    output: Path,
    device: torch.device,
    limits: Limits,
) -> Trainer:
    """Make a trainer of a new model.

    Args:
        settings: The recipe.
        processor: The vocabulary.
        output: The folder of the results.
        device: The device of the training.
        limits: When to stop.
    """
    torch.manual_seed(settings.seed)
    model = build_model(settings.model, processor.get_piece_size())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}", flush=True)
    trainer = Trainer(settings, model, output, device)

    def write_snapshot() -> None:
        weights = trainer.average if trainer.state.averaged else trainer.weights
        export(weights, trainer, output / "vocabulary" / "spm.model", output / "snapshot")

    trainer.snapshot = (limits.snapshot_at, write_snapshot)
    return trainer


def export(model: torch.nn.Module, trainer: Trainer, spm: Path, folder: Path) -> None:
    """Write a Hugging Face folder with float16 weights and the training log.

    Args:
        model: The weights to export.
        trainer: The trainer, for its log.
        spm: The SentencePiece model.
        folder: The folder of the model; it is replaced, and exists only when it is complete.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    copy.deepcopy(model).half().save_pretrained(partial)  # type: ignore[operator]
    write_tokenizer(spm, partial, trainer.settings.languages)
    log = json.dumps(trainer.state.history, indent=1)
    (partial / "training.json").write_text(log + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


if __name__ == "__main__":
    main()
