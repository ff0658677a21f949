"""Measure the confidence of translations on test sets: calibration, ranking, and the cost of computing it.

    python benchmarks/confidence.py evaluate --set it test.de test.en memories/it --set news test.de test.en - \
        [--count 400] [--output out.json]
    python benchmarks/confidence.py speed --set it test.de test.en memories/it [--rounds 5] [--output speed.json]
    python benchmarks/confidence.py plot out.json figure.svg

`evaluate` translates the first lines of each set, with a memory or ("-") with the base model alone, and compares the
confidence with two labels. "no edit": the translation equals the reference, but for white space, quotes and dashes
(`ibidem.learn.confidence.needs_no_edit`); this is what the probability is fitted to. "small edit": chrF (sacrebleu, of
the sentence) is at least 80; the probability is not fitted to it, so only its ranking is meaningful. ECE is the
expected calibration error over 10 bins of equally many translations; AUC is the area under the ROC curve, beside that
of the mean log-probability alone. `general` is the model's own confidence, `own` the one that the memory stores.

`speed` translates the same lines with and without confidence, in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sacrebleu

from ibidem.decode import (
    FEATURES,
    BaseScorer,
    LoadedMemory,
    Scorer,
    Translator,
    load_confidence,
    load_general_confidence,
    translate_and_assess,
)
from ibidem.evaluate import describe_machine
from ibidem.learn.confidence import collect_confidence_examples
from ibidem.memory import Memory
from ibidem.model import BaseModel, load_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 10
SMALL_EDIT = 80.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (("evaluate", evaluate), ("speed", measure_speed)):
        command = commands.add_parser(name)
        command.add_argument(
            "--set",
            nargs=4,
            action="append",
            required=True,
            metavar=("NAME", "SOURCES", "TARGETS", "MEMORY"),
            dest="sets",
        )
        command.add_argument("--count", type=int, default=400, help="lines of each set")
        command.add_argument("--rounds", type=int, default=5)
        command.add_argument("--output", type=Path)
        command.set_defaults(run=run)
    command = commands.add_parser("plot")
    command.add_argument("data", type=Path)
    command.add_argument("figure", type=Path)
    command.set_defaults(run=plot)
    arguments = parser.parse_args()
    arguments.run(arguments)


def evaluate(arguments: argparse.Namespace) -> None:
    """Compare the confidence of translations with their labels."""
    model = load_model(device="cpu")
    report: dict[str, Any] = {"command": " ".join(sys.argv), "machine": describe_machine(), "sets": {}}
    for name, sources, targets, folder in arguments.sets:
        began = time.process_time()
        report["sets"][name] = evaluate_set(
            model, read(sources, arguments.count), read(targets, arguments.count), folder
        )
        report["sets"][name]["cpu_seconds"] = round(time.process_time() - began, 1)
        print(name, json.dumps(report["sets"][name]), file=sys.stderr, flush=True)
    write(report, arguments.output)


def read(path: str, count: int) -> list[str]:
    """Return the first lines of a file."""
    return Path(path).read_text(encoding="utf-8").splitlines()[:count]


def write(report: dict[str, Any], path: Path | None) -> None:
    """Print a report, or write it to a file."""
    written = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if path is None:
        print(written)
    else:
        path.write_text(written, encoding="utf-8")


def open_scorer(model: BaseModel, folder: str) -> tuple[Scorer, Memory | None]:
    """Return the scorer of a memory, or of the base model for "-"."""
    if folder == "-":
        return BaseScorer(), None
    memory = Memory.open(folder)
    return LoadedMemory(memory, model).scorer, memory


def evaluate_set(model: BaseModel, sources: list[str], targets: list[str], folder: str) -> dict[str, Any]:
    """Translate a set, and return the figures of each model of confidence."""
    scorer, memory = open_scorer(model, folder)
    examples = collect_confidence_examples(model, scorer, sources, targets)
    chrf = np.array(
        [
            sacrebleu.sentence_chrf(translation, [reference]).score
            for translation, reference in zip(examples.translations, examples.references, strict=True)
        ]
    )
    small = chrf >= SMALL_EDIT
    row: dict[str, Any] = {
        "sentences": len(small),
        "memory_pairs": 0 if memory is None else memory.active_pairs,
        "no_edit": percent(examples.unedited.mean()),
        "small_edit": percent(small.mean()),
        "auc_mean_log_prob": area(examples.features[:, list(FEATURES).index("log_prob")], examples.unedited),
    }
    models = {"general": load_general_confidence(model), "own": None if memory is None else load_confidence(memory)}
    for name, confidence in models.items():
        if confidence is not None:
            row[name] = describe(confidence.probabilities(examples.features), examples.unedited, small)
    return row


def percent(share: float) -> float:
    """Return a share in percent."""
    return round(100 * float(share), 1)


def describe(
    probabilities: NDArray[np.float64], unedited: NDArray[np.bool_], small: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the figures of one model of confidence."""
    bins = reliability(probabilities, unedited)
    sure = probabilities >= np.quantile(probabilities, 0.8)
    return {
        "mean": percent(probabilities.mean()),
        "ece": round(sum(len_ * abs(mean - rate) for len_, mean, rate in bins) / len(unedited), 3),
        "auc": area(probabilities, unedited),
        "auc_small_edit": area(probabilities, small),
        "no_edit_of_surest_fifth": percent(unedited[sure].mean()),
        "bins": [[count, round(mean, 4), round(rate, 4)] for count, mean, rate in bins],
    }


def reliability(probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> list[tuple[int, float, float]]:
    """Return count, mean probability and rate of the label of BINS bins of equally many translations."""
    order = np.argsort(probabilities, kind="stable")
    return [
        (len(part), float(probabilities[part].mean()), float(labels[part].mean()))
        for part in np.array_split(order, BINS)
        if len(part)
    ]


def area(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve; None where all labels are the same."""
    if labels.all() or not labels.any():
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(labels.sum())
    found = ranks[labels].sum() - positives * (positives + 1) / 2
    return round(float(found / (positives * (len(labels) - positives))), 3)


def measure_speed(arguments: argparse.Namespace) -> None:
    """Translate with and without confidence, in turn, and compare the processor times."""
    report: dict[str, Any] = {"command": " ".join(sys.argv), "machine": describe_machine(), "sets": {}}
    for name, sources, _, folder in arguments.sets:
        lines = read(sources, arguments.count)
        translator = Translator(memory=None if folder == "-" else folder, device="cpu", split="off")
        translator.translate(lines[:32])
        ratios, rates = [], []
        for _ in range(arguments.rounds):
            tokens = translator.work.tokens
            began = time.process_time()
            translator.translate(lines)
            between = time.process_time()
            translate_and_assess(translator, lines)
            ended = time.process_time()
            ratios.append((ended - between) / (between - began))
            rates.append((translator.work.tokens - tokens) / 2 / (between - began))
        report["sets"][name] = {
            "lines": len(lines),
            "tokens_per_cpu_second": round(float(np.median(rates)), 1),
            "ratios": [round(ratio, 4) for ratio in ratios],
            "median_ratio": round(float(np.median(ratios)), 3),
        }
    write(report, arguments.output)


def plot(arguments: argparse.Namespace) -> None:
    """Draw the reliability of each set."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "ibidem"
    from matplotlib import pyplot as plt

    report = json.loads(arguments.data.read_text(encoding="utf-8"))
    sets = report["sets"]
    figure, axes = plt.subplots(figsize=(5, 4.4))
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for name, row in sets.items():
        bins = row.get("own", row["general"])["bins"]
        axes.plot([mean for _, mean, _ in bins], [rate for *_, rate in bins], marker="o", markersize=3, label=name)
    axes.set_xlabel("mean confidence of a bin")
    axes.set_ylabel("share that needed no edit")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(arguments.figure, metadata={"Date": None})


if __name__ == "__main__":
    main()
