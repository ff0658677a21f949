"""Measure the time from adding a pair to a large memory until the next translation uses it.

    python benchmarks/living.py [--entries 4000000] [--adds 50] [--threads 2] [--folder kept-memory]

The memory has the keys of the project's own sentences, reduced to 64 dimensions by PCA, synthetic keys around them up
to `--entries`, an index of the default kind, and a fixed combiner. One process adds and translates.

`add` is the call of `MemoryWriter.add_pair` (model, journal, fsync), `take_up` is `Translator.refresh`, after which a
translation uses the pair. `use` is their sum for an idle translator, and `use_processor` is its processor time, which
other programs affect less. In the series `busy` a second thread translates one sentence after the other, and the time
ends when the first batch that uses the pair begins. After each addition the benchmark searches the states of the pair
and checks that its entries are found at distance 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.combine import FixedCombiner, store_fixed
from ibidem.decode import Translator
from ibidem.evaluate import describe_machine
from ibidem.evaluate.bench import grow_keys
from ibidem.learn import CompactSettings, MemoryWriter, compact_memory, index_memory
from ibidem.memory import Memory, SegmentData
from ibidem.model import load_model
from ibidem.retrieve import ArrayKeys
from ibidem.text import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.model import BaseModel

SENTENCES = Path(__file__).parents[1] / "src" / "ibidem" / "reproduce" / "sentences.tsv"
_LENGTH = 20  # entries per synthetic pair
_BLOCK = 500_000  # entries per segment
Texts = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--adds", type=int, default=50, help="pairs of each series")
    parser.add_argument("--folder", help="where to keep the memory, or where one was kept; else it is removed")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = load_model(None, device="cpu", dtype="auto")
    texts = [(german, english) for _, german, english in map(_split, SENTENCES.read_text("utf-8").splitlines())]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.folder or scratch) / "memory"
        if not Memory.exists(folder):
            build_memory(folder, model, texts, arguments.entries, arguments.seed)
        report = measure(folder, model, texts, arguments.adds)
    print(json.dumps(report, indent=2))


def build_memory(folder: Path, model: BaseModel, texts: Texts, entries: int, seed: int) -> None:
    """Write a memory of real keys and synthetic ones around them, with an index and a fixed combiner."""
    MemoryWriter(folder, model).add([Pair(*pair, "sentences", line) for line, pair in enumerate(texts, start=1)])
    memory = compact_memory(Memory.open(folder), CompactSettings(method="pca", dimension=64), keep_keys=False)
    real, values = ArrayKeys(memory.search_keys.read(0, memory.entries)), memory.values()
    generator, coding = np.random.default_rng(seed), memory.key_coding
    assert coding is not None
    for number, start in enumerate(range(memory.entries, entries, _BLOCK)):
        pairs = max(1, min(_BLOCK, entries - start) // _LENGTH)
        size = pairs * _LENGTH
        data = SegmentData(
            keys=None,
            values=values[generator.integers(len(values), size=size)],
            log_probs=np.full(size, -1.0, np.float32),
            lengths=np.full(pairs, _LENGTH),
            sources=[f"Satz {start + i} eines erfundenen Gedächtnisses" for i in range(pairs)],
            targets=[f"Sentence {start + i} of an invented memory" for i in range(pairs)],
            origins=["invented"] * pairs,
            locations=range(pairs),
            compact=coding.encode(grow_keys(real, size, seed=seed + number).gather(np.arange(size))),
        )
        with memory.writing() as writer:
            writer.record(data)
        memory = memory.sealed()
    stored = store_fixed(FixedCombiner(8, 0.5, 10.0))
    with memory.edit() as edit:
        edit.put_artefact("combiner_fixed", stored.extension, stored.payload, stored.summary)
        memory = edit.commit()
    index_memory(memory)


def measure(folder: Path, model: BaseModel, texts: Texts, adds: int) -> dict[str, Any]:
    """Measure both series and describe the memory and the machine."""
    translator = Translator(model, folder)
    writer = MemoryWriter(folder, model)
    first = writer.memory.active_pairs  # numbers the pairs, so that they are new in every run
    drawn = enumerate(islice(cycle(texts), 2 * adds + 1), start=first)
    new = [(f"{german} ({number})", f"{english} ({number})") for number, (german, english) in drawn]
    load = os.getloadavg()
    writer.add_pair(*new[0])  # the first addition reads the texts of the memory, to recognise duplicates
    translator.translate([new[0][0]])
    idle = [add_and_take_up(translator, writer, *pair) for pair in new[1 : adds + 1]]
    busy = add_while_translating(translator, writer, new[adds + 1 :], texts)
    memory = translator.memories[0]
    return {
        "entries": memory.entries + memory.tail.entries,
        "dimension": memory.dimension,
        "synthetic_keys": True,
        "index": memory.manifest.stages["index"]["description"],
        "adds": adds,
        "idle": {name: summarise([times[name] for times in idle]) for name in idle[0]},
        "busy": {"use": summarise(busy)},
        "model": model.name,
        "threads": torch.get_num_threads(),
        "load_before_and_after": [load, os.getloadavg()],
        "machine": describe_machine(),
    }


def add_and_take_up(translator: Translator, writer: MemoryWriter, source: str, target: str) -> dict[str, float]:
    """Return the seconds of the parts of one addition, and check that the pair is used."""
    began, worked = time.perf_counter(), time.process_time()
    writer.add_pair(source, target)
    added = time.perf_counter()
    translator.refresh()
    ready, worked = time.perf_counter(), time.process_time() - worked
    translator.translate([source])
    translated = time.perf_counter()
    check_used(translator, source, target)
    return {
        "add": added - began,
        "take_up": ready - added,
        "use": ready - began,
        "use_processor": worked,
        "translation": translated - ready,
    }


def add_while_translating(translator: Translator, writer: MemoryWriter, pairs: Texts, texts: Texts) -> list[float]:
    """Return seconds from each addition to the start of the first batch that uses it; another thread translates."""
    begun: list[tuple[float, int]] = []
    stop = threading.Event()

    def translate() -> None:
        while not stop.is_set():
            translator.refresh()
            begun.append((time.perf_counter(), translator.memories[0].active_pairs))
            translator.translate([texts[len(begun) % len(texts)][0]])

    thread = threading.Thread(target=translate)
    thread.start()
    seconds = []
    for pair in pairs:
        began = time.perf_counter()
        writer.add_pair(*pair)
        wanted = writer.memory.active_pairs
        while begun[-1][1] < wanted if begun else True:
            time.sleep(0.001)
        seconds.append(next(moment for moment, pairs_used in begun if pairs_used >= wanted) - began)
    stop.set()
    thread.join()
    check_used(translator, *pairs[-1])
    return seconds


def check_used(translator: Translator, source: str, target: str) -> None:
    """Check that a search for the states of the pair added last finds its entries at distance 0."""
    tokens = translator.model.tokens
    states = translator.model.states(tokens.encode_sources([source]), tokens.encode_targets([target]))
    neighbours = translator.scorer.retrieve(states.keys)
    memory = translator.memories[0]
    own = memory.sentence(memory.number_of(memory.tail.next_id - 1)).entries
    places = torch.arange(own.start, own.stop)[:, None]
    found = (neighbours.entries == places) & (
        neighbours.distances < 0.01 * float(states.keys.square().sum(dim=1).mean())
    )
    assert found.any(dim=1).all(), f"{source!r} was added and is not found"


def summarise(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, 90th percentile and maximum in milliseconds."""
    ordered = sorted(seconds)
    return {
        "median_ms": 1000 * statistics.median(ordered),
        "p90_ms": 1000 * ordered[int(0.9 * (len(ordered) - 1))],
        "max_ms": 1000 * ordered[-1],
    }


def _split(line: str) -> tuple[str, str, str]:
    domain, german, english = line.split("\t")
    return domain, german, english


if __name__ == "__main__":
    main()
