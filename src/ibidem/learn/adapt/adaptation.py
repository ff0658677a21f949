"""Adaptation: fine-tune a base model on a corpus into a model folder, and describe the result in its card."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ibidem import __version__
from ibidem.compact import GENERAL_COMPACTOR, load_compactor, store_compactor
from ibidem.errors import UsageError
from ibidem.learn.adapt.trainer import AdaptSettings, Measurement, fine_tune, measure_text
from ibidem.learn.adapt.training_text import EncodedText
from ibidem.learn.provenance import CARD, digest, fact_table
from ibidem.memory import KeyCoding, make_directory, remove_file, rename, replace_file, sync_directory, writer_lock
from ibidem.model import GENERAL_FOLDER, find_folder, fingerprint_network, save_folder
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.compact import Compactor
    from ibidem.model import BaseModel
    from ibidem.text import Corpus

REPORT = "training.json"
_REQUEST = "request.json"
_MODEL = "model"
# Pairs of general text whose loss is measured before and after the training.
_GENERAL_HELD_OUT = 500


@dataclass(frozen=True)
class Adaptation:
    """The result of an adaptation.

    Attributes:
        path: The folder of the adapted model.
        report: What was trained: text, settings, updates, losses. `training.json` of the folder has the same.
    """

    path: Path
    report: dict[str, Any]

    @property
    def improved(self) -> bool:
        """Whether the dev loss fell; otherwise the folder holds the weights of the base model."""
        return bool(self.report["best_update"])


def adapt_model(
    model: BaseModel,
    train: Corpus,
    path: Path,
    *,
    dev: Corpus | None = None,
    general: Corpus | None = None,
    settings: AdaptSettings | None = None,
    progress: Progress = silent,
    report: Callable[[Measurement], None] = lambda _: None,
) -> Adaptation:
    """Fine-tune a model on a corpus, and write it to a folder that `load_model` reads.

    The folder appears when it is complete. Until then the run has the folder `path` + ".training" beside it, with a
    checkpoint: the same call resumes a killed run. If the folder was made by the same call already, nothing is done.

    Args:
        model: The base model with float32 weights. It is trained in place: load the folder to use the result.
        train: The parallel text of the domain.
        path: The folder of the adapted model.
        dev: The dev set that chooses the weights; None holds out pairs of `train`.
        general: General text that is mixed in, so that the model keeps its quality on other text.
        settings: The settings of the training.
        progress: Receives the number of padded tokens.
        report: Receives each measurement of the dev loss.

    Returns:
        The folder, and what was trained.

    Raises:
        UsageError: The folder exists and holds something else, an unfinished run has other text or settings, or the
            text has too few pairs to hold some out.
        TextError: A corpus has no usable pair.
        LockedMemoryError: Another process trains into the same folder.

    Examples:
        >>> from pathlib import Path
        >>> from ibidem.learn import AdaptSettings, adapt_model
        >>> from ibidem.model import load_model
        >>> from ibidem.text import Corpus
        >>> model = load_model(dtype="float32")
        >>> settings = AdaptSettings(updates=2, batch_tokens=256)
        >>> train, dev = Corpus(["train.tsv"]), Corpus(["dev.tsv"])
        >>> adapted = adapt_model(model, train, Path("models/mine"), dev=dev, settings=settings)
        >>> load_model(adapted.path).dimension == model.dimension
        True
    """
    settings = settings or AdaptSettings()
    if any(weight.dtype != torch.float32 for weight in model.network.parameters()):
        raise UsageError(f"The weights of {model.name} are not in float32: load the model with dtype float32 to train.")
    path = path.resolve()
    check_target(path)
    compactor = _read_compactor(model)
    text = _read(model, train, dev, general, settings)
    request = digest(
        model.fingerprint,
        model.tokenizer_fingerprint,
        [None if part is None else part.digest() for part in (text.train, text.dev, text.general)],
        settings,
        settings.forward_tokens_on(model.device),
    )
    work = path.with_name(f"{path.name}.training")
    if path.exists():
        done = _read_report(path)
        if done is not None and done.get("request") == request:
            remove_file(work)  # its process was killed after the folder was complete
            return Adaptation(path, done)
        if done is not None:
            raise UsageError(
                f"{path} holds a model that was adapted with other text or settings: name another folder, or remove it."
            )
    make_directory(work)
    with writer_lock(work):
        _check_request(work, request)
        facts = _describe_text(model, text, train, dev, general)
        before = _measure_general(model, text, settings)
        trained = fine_tune(
            model,
            text.train,
            text.dev,
            settings,
            general=text.general,
            workspace=work,
            identity=request,
            progress=progress,
            report=report,
        )
        losses = {"general_loss_before": before, "general_loss": _measure_general(model, text, settings)}
        whole = {
            "request": request,
            "ibidem_version": __version__,
            "base_model": model.name,
            **facts,
            **{name: loss for name, loss in losses.items() if loss is not None},
            **trained,
            "device": str(model.device),
            "settings": asdict(settings),
        }
        _write_folder(model, work / _MODEL, whole, path.name, compactor)
        if path.is_dir():
            path.rmdir()  # it is empty
        rename(work / _MODEL, path)
    remove_file(work)
    return Adaptation(path, whole)


def check_target(path: Path) -> None:
    """Check that a folder can receive an adapted model: it is missing, empty, or holds one already.

    Args:
        path: The folder.

    Raises:
        UsageError: The path holds something else.
    """
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or _read_report(path) is not None)):
        raise UsageError(f"{path} exists and is not a model of `ibidem adapt`: name another folder, or remove it.")


@dataclass(frozen=True)
class _Text:
    """The text of a run; `general_dev` is general text that is only measured."""

    train: EncodedText
    dev: EncodedText
    general: EncodedText | None
    general_dev: EncodedText | None


def _read(
    model: BaseModel, train: Corpus, dev: Corpus | None, general: Corpus | None, settings: AdaptSettings
) -> _Text:
    tokens = model.tokens
    own = EncodedText.read(train, tokens)
    if dev is None:
        own, measured = own.hold_out(settings.held_out, settings.seed)
        if not len(measured):
            raise UsageError(
                f"The text ({train.description}) has too few different pairs to hold some out: give a dev set with "
                "--dev."
            )
    else:
        measured = EncodedText.read(dev, tokens)
    if general is None or not settings.general_ratio:
        return _Text(own, measured, None, None)
    wanted = math.ceil(settings.general_ratio * settings.passes * len(own)) + _GENERAL_HELD_OUT
    mixed, held = EncodedText.sample(general, tokens, wanted, settings.seed).hold_out(_GENERAL_HELD_OUT, settings.seed)
    return _Text(own, measured, mixed, held if len(held) else None)


def _measure_general(model: BaseModel, text: _Text, settings: AdaptSettings) -> float | None:
    if text.general_dev is None:
        return None
    return measure_text(model, text.general_dev, settings.forward_tokens_on(model.device))


def _describe_text(
    model: BaseModel, text: _Text, train: Corpus, dev: Corpus | None, general: Corpus | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "languages": f"{model.tokens.source_language or '?'} to {model.tokens.target_language or '?'}",
        "text": train.description,
        "text_counts": train.counts.describe(),
        "pairs": len(text.train),
        "target_tokens": text.train.target_tokens,
        "dev": "pairs of the text, held out" if dev is None else dev.description,
        "dev_pairs": len(text.dev),
    }
    if model.tokens.source_prefix:
        facts["source_prefix"] = model.tokens.source_prefix
    if general is not None and text.general is not None:
        facts |= {"general_text": general.description, "general_pairs": len(text.general)}
    return facts


def _read_report(path: Path) -> dict[str, Any] | None:
    """Return the report of an adapted model; None where the folder is not one."""
    try:
        report = json.loads((path / REPORT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and "request" in report else None


def _check_request(work: Path, request: str) -> None:
    """Store what a run depends on, and refuse the folder of another run."""
    file = work / _REQUEST
    if not file.exists():
        replace_file(file, json.dumps({"request": request}).encode())
    elif _stored_request(file) != request:
        raise UsageError(
            f"{work} holds an unfinished run with other text or settings: give the same ones to continue, name "
            "another folder, or remove this one."
        )


def _stored_request(file: Path) -> object:
    try:
        stored = json.loads(file.read_bytes())
    except ValueError:
        return None
    return stored.get("request") if isinstance(stored, dict) else None


def _read_compactor(model: BaseModel) -> tuple[Compactor, KeyCoding] | None:
    """Read the general compactor before the training, so that a damaged one is found before time is spent."""
    if model.general is None:
        return None
    file = model.general / GENERAL_COMPACTOR
    return load_compactor(file), KeyCoding.read(file.read_bytes())


def _write_folder(
    model: BaseModel, folder: Path, report: dict[str, Any], name: str, general: tuple[Compactor, KeyCoding] | None
) -> None:
    """Write a complete model folder, durably."""
    remove_file(folder)
    save_folder(model.network, find_folder(model.name), folder, omitted=[REPORT])
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    (folder / CARD).write_text(describe_adaptation(report, name), "utf-8")
    if model.general is not None and general is not None:
        shutil.copytree(model.general, folder / GENERAL_FOLDER)
        compactor, coding = general
        notes = {"model": name, "model_fingerprint": fingerprint_network(model.network)}
        (folder / GENERAL_FOLDER / GENERAL_COMPACTOR).write_bytes(store_compactor(compactor, notes, coding))
    for place in (folder, *folder.rglob("*")):
        if place.is_dir():
            sync_directory(place)
        else:
            with place.open("rb+") as opened:
                os.fsync(opened.fileno())


def describe_adaptation(report: dict[str, Any], name: str) -> str:
    """Return the card of an adapted model in Markdown.

    Args:
        report: The report of the adaptation.
        name: The name of the model.
    """
    hidden = ("request", "history", "settings", "languages")
    rows = [
        f"| {point['update']:,} | {_figure(point['loss'])} | {_figure(point['dev_loss'])} "
        f"| {_figure(point['average_loss'])} |"
        for point in report["history"]
    ]
    rank = report["settings"]["lora_rank"]
    trained = f"adapters of rank {rank} (LoRA) trained and merged" if rank else "all weights fine-tuned"
    parts = [
        f"# {name}",
        f"`{report['base_model']}` ({report['languages']}), {trained} by `ibidem adapt`. Losses are cross-entropies in "
        "nats a token.",
        fact_table({name: value for name, value in report.items() if name not in hidden}),
        "## Use",
        f"```\nibidem translate --model {name}\nibidem learn --model {name} --train FILES --dev FILES -o MEMORY\n"
        "ibidem translate -m MEMORY\n```",
        "## Settings",
        fact_table(report["settings"]),
        "## Measurements",
        "\n".join(["| update | training loss | dev loss | dev loss of the average |", "|---|---|---|---|", *rows]),
    ]
    return "\n\n".join(parts) + "\n"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
