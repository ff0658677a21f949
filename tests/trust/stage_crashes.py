"""Kills the stages of learning at file operations and at random moments, and runs them again: the same bytes result.

The script loads a tiny model once, and forks a process for every stage that is killed, repeated or checked. Its last
line of output is a JSON object with the number of kills and the failures of each stage.

    python stage_crashes.py MODEL CORPUS SCRATCH STAGES SEED KILLS SECONDS

STAGES are names with commas between them; KILLS and SECONDS are those of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from ibidem.errors import IbidemError
from ibidem.learn import (
    AdaptSettings,
    CompactSettings,
    ContextualSettings,
    ExtractSettings,
    LearnSettings,
    MemoryWriter,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    adapt_model,
    compact_memory,
    extract,
    index_memory,
    learn,
    prune_memory,
    restore_memory,
    tune,
)
from ibidem.memory import Memory, verify_folder
from ibidem.model import load_model
from ibidem.text import Corpus
from trust.operations import count_operations, kill_at, observed
from trust.workload import copy, digest, held, in_child

if TYPE_CHECKING:
    from collections.abc import Callable

TUNE = TuneSettings(k=4, metak=MetaKSettings(updates=10), contextual=ContextualSettings(updates=10))
# Enough sentences for a model of confidence.
CONFIDENCE = TuneSettings(
    k=4, confidence_sentences=60, metak=MetaKSettings(updates=2), contextual=ContextualSettings(updates=2)
)
ADAPT = AdaptSettings(updates=6, batch_tokens=512, learning_rate=3e-3, measurements=3, bfloat16=False, seed=1)
SETTINGS = LearnSettings(tune=TUNE, extract=ExtractSettings(segment_bytes=1 << 13))


class Stages:
    """A stage and those that it starts from, each with the folder that it leaves."""

    def __init__(self, model_folder: str, model: Any, corpus: Path, scratch: Path) -> None:
        self._scratch = scratch
        lines = corpus.read_text("utf-8").splitlines()
        scratch.mkdir(parents=True)
        (scratch / "small.tsv").write_text("\n".join(lines[:24]) + "\n", "utf-8")
        (scratch / "more.tsv").write_text("\n".join(lines[24:34]) + "\n", "utf-8")
        (scratch / "dev.tsv").write_text("\n".join(lines[-60:]) + "\n", "utf-8")
        self.pairs = [line.split("\t")[:2] for line in lines]

        def corpus_of(name: str) -> Corpus:
            return Corpus([scratch / name])

        def writer(folder: Path) -> MemoryWriter:
            return MemoryWriter(folder, model)

        def import_pairs(folder: Path) -> None:
            writer(folder).add(corpus_of("more.tsv"))

        def adapt(folder: Path) -> None:
            # Training changes the weights of the model in memory.
            adapt_model(load_model(model_folder, device="cpu"), corpus_of("small.tsv"), folder, settings=ADAPT)

        self.actions: dict[str, tuple[str, Callable[[Path], object]]] = {
            "extract": ("", lambda f: extract(model, corpus_of("small.tsv"), f, seed=1, settings=SETTINGS.extract)),
            "learn": ("", lambda f: learn(model, corpus_of("small.tsv"), f, seed=1, settings=SETTINGS)),
            "compact": (
                "extract",
                lambda f: compact_memory(Memory.open(f), CompactSettings(method="pca", dimension=8)),
            ),
            "tune": ("extract", lambda f: tune(Memory.open(f), model, settings=TUNE)),
            "confidence": ("extract", lambda f: tune(Memory.open(f), model, corpus_of("dev.tsv"), settings=CONFIDENCE)),
            "prune": ("extract", lambda f: prune_memory(Memory.open(f), PruneSettings(rate=0.3))),
            "restore": ("prune", restore_if_pruned),
            "index": ("extract", lambda f: index_memory(Memory.open(f), "IVF4,SQ8;nprobe=4")),
            "add": ("learn", lambda f: writer(f).add_pair("Ein neuer Satz.", "A new sentence.")),
            "remove": ("add", lambda f: remove_if_there(writer(f), self.pairs[0])),
            "replace": ("add", lambda f: replace_if_there(writer(f), self.pairs[1])),
            "seal": ("add", lambda f: Memory.open(f).sealed()),
            "import": ("learn", import_pairs),
            "merge": ("import", lambda f: index_memory(Memory.open(f), "IVF4,SQ8;nprobe=4")),
            "adapt": ("", adapt),
        }
        self.finished: dict[str, Path] = {}
        self.digests: dict[str, str] = {}
        self.operations: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def finish(self, name: str) -> None:
        """Run a stage without a kill, after those that it starts from."""
        before, act = self.actions[name]
        if before and before not in self.finished:
            self.finish(before)
        folder = self.start(name, self._scratch / "finished" / name / "mine")
        began = time.monotonic()
        self.operations[name] = len(count_operations(folder.parent, lambda: act(folder)))
        self.seconds[name] = time.monotonic() - began
        if name == "confidence":
            assert "confidence" in Memory.open(folder).manifest.artefacts
        self.finished[name] = folder
        self.digests[name] = digest_folder(folder)

    def start(self, name: str, folder: Path) -> Path:
        """Copy the memory that a stage starts from; some stages start from nothing."""
        before = self.actions[name][0]
        if before:
            return copy(self.finished[before], folder)
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        return folder


def digest_folder(folder: Path) -> str:
    """Return a digest of a memory, or of the files of a model."""
    if Memory.exists(folder):
        return digest(folder)
    parts = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix != ".md" and file.name != "training.json":  # these have times
            parts.update(file.name.encode() + b"\0" + file.read_bytes())
    return parts.hexdigest()


def restore_if_pruned(folder: Path) -> None:
    if Memory.open(folder).snapshots():
        restore_memory(Memory.open(folder))


def remove_if_there(writer: MemoryWriter, pair: list[str]) -> None:
    if writer.memory.find(*pair):
        writer.remove_pair(*pair)


def replace_if_there(writer: MemoryWriter, pair: list[str]) -> None:
    if writer.memory.find(*pair):
        writer.replace_pair(*pair, "Another translation.")


def kill(stages: Stages, name: str, folder: Path, random: Random) -> str:
    """Run a stage and kill it; return a description of the moment, empty if it had ended before."""
    act = stages.actions[name][1]
    if random.random() < 0.7:
        number, share = random.randrange(stages.operations[name]), random.choice([0.0, 0.5])

        def ended() -> None:
            with observed(folder.parent, kill_at(number, share)):
                act(folder)

        return f"operation {number}" if in_child(ended) == -signal.SIGKILL else ""
    child = os.fork()
    if child == 0:
        try:
            act(folder)
        finally:
            os._exit(0)
    delay = random.uniform(0, stages.seconds[name])
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return f"{delay:.3f} s" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL else ""


def check(stages: Stages, name: str, folder: Path) -> None:
    """Open the memory in a fresh process, run the stage again, and compare."""
    before = stages.actions[name][0]
    if Memory.exists(folder):
        assert verify_folder(folder)[1] == []
        found = Memory.open(folder)
        if before and name not in ("remove", "replace"):
            kept = {row[:4] for row in held(Memory.open(stages.finished[before])).values()}
            assert {row[:4] for row in held(found).values()} >= kept
    try:
        stages.actions[name][1](folder)
    except IbidemError as error:
        raise AssertionError(f"the second run of {name} failed: {error}") from error
    if Memory.exists(folder):
        assert verify_folder(folder)[1] == []
    assert digest_folder(folder) == stages.digests[name], "another result than without the kill"


def kill_often(stages: Stages, name: str, scratch: Path, seed: str, kills: int, seconds: float) -> dict[str, Any]:
    """Kill a stage until the kills or the seconds are used up, and return their number and the failures."""
    if name not in stages.finished:
        stages.finish(name)
    random = Random(f"{name} {seed}")
    end = time.monotonic() + (seconds or 1e9)
    count = 0
    failures: list[str] = []
    for _ in range(kills):
        if time.monotonic() > end or len(failures) > 5:
            break
        folder = stages.start(name, scratch / "killed" / "mine")
        moment = kill(stages, name, folder, random)
        count += bool(moment)
        if in_child(lambda folder=folder: check(stages, name, folder)):  # type: ignore[misc]
            failures.append(f"{name}, killed at {moment or 'no moment'}")
            shutil.copytree(folder, scratch / f"failure-{name}-{len(failures)}", dirs_exist_ok=True)
        shutil.rmtree(folder.parent, ignore_errors=True)
    return {"kills": count, "failures": failures, "operations": stages.operations[name]}


def main() -> None:
    model_folder, corpus, scratch, names, seed, kills, seconds = sys.argv[1:]
    torch.set_num_threads(1)  # no thread pool may exist when the process forks
    model = load_model(model_folder, device="cpu")
    assert model.fingerprint
    assert model.tokenizer_fingerprint
    stages = Stages(model_folder, model, Path(corpus), Path(scratch))
    reports = {
        name: kill_often(stages, name, Path(scratch), seed, int(kills), float(seconds)) for name in names.split(",")
    }
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
