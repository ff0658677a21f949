"""Train the base model of the package: parallel text in, a Hugging Face Marian folder out.

    python recipes/base_model recipes/base_model/config.toml --data DATA --output runs/base

Every stage writes its result to OUTPUT and is skipped if the result exists: the same command resumes a killed run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from batches import encode
from settings import Settings, read_settings
from training import Trainer, build_model
from vocabulary import read_pairs, train_vocabulary, write_tokenizer


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
    arguments = parser.parse_args()
    settings = read_settings(arguments.config)
    if arguments.minutes is not None:
        training = {**vars(settings.training), "minutes": arguments.minutes}
        settings = Settings(**{**vars(settings), "training": type(settings.training)(**training)})
    arguments.output.mkdir(parents=True, exist_ok=True)
    train(settings, arguments.data, arguments.output, torch.device(arguments.device), arguments.pause_after)


def train(settings: Settings, data: Path, output: Path, device: torch.device, pause_after: float | None) -> None:
    """Run every stage that is not complete.

    Args:
        settings: The recipe.
        data: The folder of the corpora.
        output: The folder of the results.
        device: The device of the training.
        pause_after: Minutes after which to stop; None trains to the end.
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

    model = build_model(settings.model, processor.get_piece_size())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}", flush=True)
    trainer = Trainer(settings, model, output, device)
    if trainer.resume():
        print(f"resumed at step {trainer.state.step}", flush=True)
    references = dev_references[: settings.dev.sentences]
    if not trainer.run(sources, targets, corpus, dev, references, processor, pause_after):
        print(f"paused at step {trainer.state.step}, {trainer.progress():.0%} done: the same command resumes")
        return
    last = trainer.dev_bleu(trainer.model, dev, references, processor)
    mean = trainer.dev_bleu(trainer.average, dev, references, processor) if trainer.state.averaged else -1.0
    best = trainer.average if mean >= last else trainer.weights
    print(json.dumps({"dev_bleu_last": last, "dev_bleu_average": mean}))
    export(best, trainer, spm, output / "model")


def export(model: torch.nn.Module, trainer: Trainer, spm: Path, folder: Path) -> None:
    """Write a Hugging Face folder with float16 weights and the training log.

    Args:
        model: The weights to export.
        trainer: The trainer, for its log.
        spm: The SentencePiece model.
        folder: The folder of the model; it is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.half().save_pretrained(folder)  # type: ignore[operator]
    write_tokenizer(spm, folder, trainer.settings.languages)
    log = json.dumps(trainer.state.history, indent=1)
    (folder / "training.json").write_text(log + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
