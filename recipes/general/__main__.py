"""Train the general parts of a base model; see README.md."""

from __future__ import annotations

import argparse
from pathlib import Path

import compactor as compactor_training
import numpy as np

from ibidem.api import open_corpus
from ibidem.combine import ContextualNetwork, load_entry_table, store_contextual
from ibidem.decode import GENERAL_CONFIDENCE, BaseScorer, LoadedMemory
from ibidem.learn import gather_examples
from ibidem.learn.combiner_training import ContextualSettings, train_contextual
from ibidem.learn.confidence import collect_confidence_examples, fit_confidence
from ibidem.learn.examples import join_examples
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.retrieve import open_index

NEIGHBOURS = 8


def main() -> None:
    """Run one of the three trainings."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("compactor", help="train the compactor and the source projection on general text")
    first.add_argument("--text", nargs=2, type=Path, required=True, help="sources and targets, line by line")
    first.add_argument("--pairs", type=int, default=60_000, help="pairs to draw from the text")
    first.add_argument("--dimension", type=int, default=96)
    first.add_argument("--updates", type=int, default=5000)
    first.add_argument("--anchors", type=int, default=24_000, help="states to train on")
    first.set_defaults(run=run_compactor)
    second = commands.add_parser("combiner", help="train the combiner on development sets with memories")
    second.add_argument("--memory", nargs=3, action="append", required=True, metavar=("FOLDER", "SOURCES", "TARGETS"))
    second.add_argument("--updates", type=int, default=5000)
    second.set_defaults(run=run_combiner)
    third = commands.add_parser("confidence", help="fit the confidence on development sets, with memories and without")
    third.add_argument("--text", nargs=4, action="append", default=[], metavar=("SOURCES", "TARGETS", "FIRST", "COUNT"))
    third.add_argument(
        "--memory",
        nargs=5,
        action="append",
        default=[],
        metavar=("FOLDER", "SOURCES", "TARGETS", "FIRST", "COUNT"),
    )
    third.add_argument("--strength", type=float, default=3.0, help="see fit_confidence")
    third.set_defaults(run=run_confidence)
    for command in (first, second, third):
        command.add_argument("-o", "--output", type=Path, required=True, help="the folder `general`")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--model", default=None)
        command.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    arguments.run(arguments)


def run_compactor(arguments: argparse.Namespace) -> None:
    """Train the compactor and the source projection."""
    model = load_model(arguments.model, device=arguments.device)
    pairs = list(open_corpus(arguments.text, model))
    drawn = np.random.default_rng(arguments.seed).permutation(len(pairs))[: arguments.pairs]
    settings = compactor_training.Settings(arguments.dimension, arguments.updates, arguments.anchors, arguments.seed)
    compactor_training.train(model, [pairs[i] for i in np.sort(drawn)], arguments.output, settings)


def run_combiner(arguments: argparse.Namespace) -> None:
    """Train the combiner on all development sets together."""
    model = load_model(arguments.model, device=arguments.device)
    parts = []
    for folder, *files in arguments.memory:
        memory = Memory.open(folder)
        pairs = list(open_corpus([Path(file) for file in files], model))
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        table = load_entry_table(memory, model.device)
        index = open_index(memory, None, model.device)
        parts.append(gather_examples(model, index, table, sources, targets, NEIGHBOURS))
        print(f"{folder}: {len(parts[-1])} tokens")
    settings = ContextualSettings(updates=arguments.updates, learning_rate=2e-3, batch=4096, seed=arguments.seed)
    # The scale is that of the first memory, which should be a large one: all memories are in one space.
    start = ContextualNetwork(NEIGHBOURS, parts[0].typical_distance())
    trained = train_contextual(join_examples(parts), settings, start=start)
    (arguments.output / "combiner.safetensors").write_bytes(store_contextual(trained.combiner).payload)
    print(f"validation loss {trained.loss:.4f} after {trained.updates} updates")


def run_confidence(arguments: argparse.Namespace) -> None:
    """Fit the confidence on all development sets together."""
    model = load_model(arguments.model, device=arguments.device)
    parts = []
    for folder, *files, first, count in [("-", *text) for text in arguments.text] + arguments.memory:
        pairs = list(open_corpus([Path(file) for file in files], model))[int(first) : int(first) + int(count)]
        scorer = BaseScorer() if folder == "-" else LoadedMemory(Memory.open(folder), model).scorer
        found = collect_confidence_examples(
            model, scorer, [pair.source for pair in pairs], [pair.target for pair in pairs]
        )
        parts.append(found)
        print(f"{folder} {files[0]}: {len(found.unedited)} sentences, {found.unedited.mean():.3f} without an edit")
    features = np.concatenate([part.features for part in parts])
    unedited = np.concatenate([part.unedited for part in parts])
    info: dict[str, object] = {"sentences": len(unedited), "unedited": int(unedited.sum())}
    fitted = fit_confidence(features, unedited, strength=arguments.strength, info=info)
    (arguments.output / GENERAL_CONFIDENCE).write_bytes(fitted.store())


if __name__ == "__main__":
    main()
