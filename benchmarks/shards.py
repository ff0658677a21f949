"""Measure what shards cost: the transport and the merging of a step, recall, and the speed of translation.

    python benchmarks/shards.py --output shards.json
    python benchmarks/shards.py --output shards.json -m memories/it --divided memories/it-2 --text DATA/it/test.de.xz

Steps: two parts that answer at once are searched in this process, over TCP on loopback, over a plain Unix socket and
over shared memory, interleaved; what is reported is the transport and the merging alone, as medians in milliseconds.
Recall: native shards of drawn keys in clusters, against exact search. Speed: tokens a second of translation in batches
of 32 with beam 5, with two processes of `ibidem shard` on loopback, with the same shards in this process, with one
index, and without a memory, in interleaved rounds; this process has one thread. Without -m the memory is learnt from
the project's own sentences. With -m, that memory has the one index, and --divided names a copy of it with two shards
(`ibidem index -m COPY native --shards 2`); without --divided a copy is made, which takes minutes for a large memory.
Processor time is that of this process, without that of the shards. RAM is that of processes that have translated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.decode import BaseScorer, SearchSettings, Translator
from ibidem.evaluate import describe_machine
from ibidem.learn import LearnSettings, index_memory, learn
from ibidem.memory import Memory, ModelIdentity, SegmentData
from ibidem.model import load_model
from ibidem.retrieve import (
    ArrayKeys,
    ExactIndex,
    Found,
    IndexPlan,
    LoadedPart,
    LocalParts,
    PartedIndex,
    PartPlan,
    build_index,
    divide,
    measure_recall,
    read_plan,
)
from ibidem.retrieve.sharded import (
    RemoteParts,
    ShardServer,
    ShardSettings,
    describe_part,
    parse_address,
    parse_addresses,
)
from ibidem.text import Corpus, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event

    from ibidem.model import BaseModel
    from ibidem.retrieve import Rows

DIMENSION, K, BEAM, BATCH = 64, 8, 5, 32
ROWS = (5, 160)
SENTENCES = Path(__file__).parents[1] / "src" / "ibidem" / "reproduce" / "sentences.tsv"


@dataclass(frozen=True)
class ReadyPart(LoadedPart):
    """A part that answers at once, so that only the transport takes time."""

    def search(self, rows: Rows) -> Found:
        count = len(rows.queries)
        distances = np.broadcast_to(np.arange(K, dtype=np.float64), (count, K))
        return Found(distances, np.broadcast_to(np.arange(K), (count, K)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000, help="drawn keys for the recall")
    parser.add_argument("--rounds", type=int, default=400, help="steps of each transport")
    parser.add_argument("--translations", type=int, default=8, help="rounds of translation, of a batch each")
    parser.add_argument("--sentences", type=int, default=256, help="sentences to take batches from")
    parser.add_argument("-m", "--memory", type=Path, help="a memory of the shipped model with one index")
    parser.add_argument("--divided", type=Path, help="a copy of it with two shards")
    parser.add_argument("--text", type=Path, help="lines to translate; default: sentences of the memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        report: dict[str, Any] = {"steps_ms": measure_steps(scratch, arguments.rounds)}
        print(json.dumps(report["steps_ms"]), flush=True)
        report["recall"] = measure_recalls(arguments.keys, arguments.seed)
        print(json.dumps(report["recall"]), flush=True)
        report["translation"] = measure_translation(scratch, arguments)
        print(json.dumps(report["translation"]), flush=True)
    if arguments.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        given = "" if arguments.memory is None else " -m MEMORY --divided COPY"
        given += "" if arguments.text is None else " --text DATA"
        options = f"--keys {arguments.keys} --rounds {arguments.rounds} --seed {arguments.seed}"
        provenance = {
            "command": f"python benchmarks/shards.py {options} --translations {arguments.translations}{given}",
            "commit": commit.stdout.strip(),
            "seed": str(arguments.seed),
            "signature": "no BLEU",
            "machine": describe_machine(),
        }
        arguments.output.write_text(json.dumps({"provenance": provenance, **report}, indent=1) + "\n", "utf-8")


# steps


def measure_steps(scratch: Path, rounds: int) -> dict[str, Any]:
    """Measure steps of two parts that answer at once."""
    memory = make_memory(scratch / "steps")
    plan = read_plan(memory)
    assert plan is not None
    report: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        ways = {"in one process": PartedIndex(plan, LocalParts(ready_parts(plan)))}
        tcp = [stack.enter_context(ready_shard(memory.path, number, "127.0.0.1:0")) for number in (1, 2)]
        unix = [stack.enter_context(ready_shard(memory.path, number, f"unix:{scratch}/{number}")) for number in (1, 2)]
        for name, addresses in (("TCP", tcp), ("shared memory", unix)):
            parts = RemoteParts(memory, plan, settings_of(addresses))
            stack.callback(parts.close)
            ways[name] = PartedIndex(plan, parts)
        for count in ROWS:
            found = interleave({name: stepper(index, count) for name, index in ways.items()}, rounds)
            report[f"{count} queries"] = found | {
                f"{name} adds": round(found[name] - found["in one process"], 4) for name in ("TCP", "shared memory")
            }
        assert not any(
            index.searcher.missed_steps for index in ways.values() if isinstance(index.searcher, RemoteParts)
        )
    return report


def make_memory(folder: Path) -> Memory:
    """Make a memory of 64 drawn entries with two exact shards."""
    random = np.random.default_rng(0)
    memory = Memory.create(folder, ModelIdentity("drawn", "0" * 64, "0" * 64, DIMENSION, 100, "de", "en"))
    with memory.edit() as edit:
        edit.append_segment(
            SegmentData(
                keys=random.standard_normal((64, DIMENSION)).astype(np.float16),
                values=np.full(64, 5, np.int32),
                log_probs=np.zeros(64, np.float32),
                lengths=np.full(8, 8),
                sources=["a"] * 8,
                targets=["b"] * 8,
                origins=["drawn"] * 8,
                locations=list(range(8)),
            )
        )
        edit.set_complete(True)
        memory = edit.commit()
    return index_memory(memory, "exact", shards=2)[0]


def ready_parts(plan: IndexPlan) -> list[LoadedPart]:
    keys = ArrayKeys(np.zeros((32, DIMENSION), np.float16))
    return [ReadyPart(ExactIndex(keys), part) for part in plan.parts]


def _serve(folder: Path, number: int, address: str, told: Any, ended: Event) -> None:
    torch.set_num_threads(1)
    memory = Memory.open(folder)
    plan = read_plan(memory)
    assert plan is not None
    server = ShardServer(ready_parts(plan)[number - 1], describe_part(memory, plan, number), parse_address(address))
    told.put(str(server.address))
    server.run()
    ended.wait()


@contextlib.contextmanager
def ready_shard(folder: Path, number: int, address: str) -> Iterator[str]:
    """Serve a part that answers at once in another process; yields its address."""
    context = multiprocessing.get_context("spawn")
    told, ended = context.Queue(), context.Event()
    process = context.Process(target=_serve, args=(folder, number, address, told, ended), daemon=True)
    process.start()
    try:
        yield told.get(timeout=120)
    finally:
        process.terminate()
        process.join()


def stepper(index: PartedIndex, count: int) -> Callable[[], None]:
    """Return a function that searches for all rows of a step, as the native step calls it."""
    queries = np.random.default_rng(1).standard_normal((count, DIMENSION)).astype(np.float32)
    modes = np.full(count, 2, np.uint8)
    distances, entries = np.empty((count, K), np.float32), np.empty((count, K), np.int64)
    return lambda: index.search_rows(queries, modes, BEAM, K, distances, entries)


def interleave(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median time of each function in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 20):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            if number >= 20:
                times[name].append(1e3 * (time.perf_counter() - begun))
    return {name: round(statistics.median(found), 4) for name, found in times.items()}


# recall


def measure_recalls(count: int, seed: int) -> dict[str, Any]:
    """Measure recall@16 of one index, and of 2 and 4 native shards."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((count // 50, DIMENSION), np.float32)
    drawn = centres[random.integers(len(centres), size=count)]
    keys = (drawn + 0.3 * random.standard_normal((count, DIMENSION), np.float32)).astype(np.float16)
    whole = ArrayKeys(keys)
    report: dict[str, Any] = {"keys": count, "k": 16}
    for shards in (1, 2, 4):
        loaded = []
        for first, last in divide(count, shards):
            index = build_index(ArrayKeys(keys[first:last]), "native", seed=seed)
            loaded.append(LoadedPart(index, PartPlan(first, last, "native")))  # type: ignore[arg-type]
        plan = IndexPlan(DIMENSION, 0, "", tuple(part.plan for part in loaded))
        parted = PartedIndex(plan, LocalParts(loaded))
        report[f"{shards} shards"] = round(measure_recall(parted, whole, samples=512, seed=seed + 1), 4)
    return report


# translation


def measure_translation(scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure tokens a second with and without a memory that two processes serve."""
    model = load_model(device="cpu")
    whole, divided = prepare(scratch, model, arguments)
    settings = SearchSettings(beam=BEAM)

    def open_translator(memory: Memory, shards: ShardSettings | None = None) -> Translator:
        return Translator(model, memory, settings=settings, batch_size=BATCH, shards=shards)

    if arguments.text is None:
        texts = [pair.source for pair in whole.sentences()][:: max(1, whole.pairs // arguments.sentences)]
    else:
        with Stream(str(arguments.text)) as stream:
            texts = [line for _, line in stream.lines()]
    texts = [text for text in texts if text.strip()][: arguments.sentences]
    batch: list[str] = []
    translators = {"one index": open_translator(whole), "two shards in this process": open_translator(divided)}
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(real_shard(divided.path, number)) for number in (1, 2)]
        addresses = ",".join(address for address, _ in served)
        translators["two shards over TCP"] = remote = open_translator(divided, settings_of(addresses.split(",")))
        systems: dict[str, Callable[[], object]] = {
            name: (lambda translator=translator: translator.translate(batch))  # type: ignore[misc]
            for name, translator in translators.items()
        }
        plain = Translator(model, settings=settings, batch_size=BATCH)
        systems["without a memory"] = lambda: plain.translate(batch, scorer=BaseScorer())
        translators["without a memory"] = plain
        elapsed: dict[str, list[float]] = {name: [] for name in systems}
        processor: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(arguments.translations + 1):
            batch[:] = [texts[(number * BATCH + place) % len(texts)] for place in range(BATCH)]
            for name, run in systems.items():
                work = translators[name].work
                tokens, began, used = work.tokens, time.perf_counter(), time.process_time()
                run()
                if number:  # the first round loads what is loaded once
                    made = work.tokens - tokens
                    elapsed[name].append(made / (time.perf_counter() - began))
                    processor[name].append(made / (time.process_time() - used))
        assert not any(state.missed for state in remote.loaded_memories[0].shard_states)
        ram = {f"shard {number}": ram_of(process.pid, divided.path) for number, (_, process) in enumerate(served, 1)}
        ram["client of the shards"] = client_ram(divided.path, addresses)
        ram["one index in one process"] = client_ram(whole.path, None)
        ram["without a memory"] = client_ram(None, None)
    return {
        "entries": divided.entries,
        "batch": f"{BATCH} x {BEAM}",
        "batches": arguments.translations,
        "tokens_over_no_memory": {
            "a second": ratios(elapsed),
            "a second of this process's processor time": ratios(processor),
        },
        "ram_mb": ram,
    }


def settings_of(addresses: list[str]) -> ShardSettings:
    """Return settings with a deadline that a busy machine keeps, so that no step lacks a part."""
    return ShardSettings(parse_addresses(addresses), deadline_ms=60_000)


def ratios(speeds: dict[str, list[float]]) -> dict[str, float]:
    """Return the median over the rounds of each speed over that without a memory."""
    off = speeds["without a memory"]
    found = {name: [one / base for one, base in zip(speed, off, strict=True)] for name, speed in speeds.items()}
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def prepare(scratch: Path, model: BaseModel, arguments: argparse.Namespace) -> tuple[Memory, Memory]:
    """Return a memory with one native index, and a copy of it with two shards."""
    if arguments.memory is None:
        rows = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()]
        text = scratch / "sentences.tsv"
        text.write_text("".join(f"{german}\t{english}\n" for _, german, english in rows), "utf-8")
        learnt = learn(model, Corpus([text]), scratch / "memory", settings=LearnSettings(), seed=arguments.seed)
        whole = index_memory(learnt, "native", threads=1)[0]
    else:
        whole = Memory.open(arguments.memory)
    if arguments.divided is not None:
        return whole, Memory.open(arguments.divided)
    copy = Memory.open(shutil.copytree(whole.path, scratch / "divided"))
    return whole, index_memory(copy, "native", shards=2, threads=1)[0]


_CLIENT = """
import os
import sys
import torch
torch.set_num_threads(1)
from ibidem.decode import Translator
memory, shards = (value or None for value in sys.argv[1:])
translator = Translator(memory=memory, device="cpu", shards=shards)
translator.translate(["Die Datei ist leer."])
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def client_ram(folder: Path | None, shards: str | None) -> dict[str, float]:
    """Return the RAM of a process that has translated a sentence."""
    command = [sys.executable, "-W", "ignore", "-c", _CLIENT, str(folder or ""), shards or ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        return ram_of(number, folder)  # the end of the block closes stdin, which ends the process


def ram_of(process: int, folder: Path | None) -> dict[str, float]:
    """Return the anonymous RAM of a process in MB, and the resident part of the files of a memory that it maps."""
    anonymous = mapped = 0
    inside = False
    for line in Path(f"/proc/{process}/smaps").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0]:
            inside = folder is not None and str(folder.resolve()) in line
        elif name == "Anonymous":
            anonymous += int(value.split()[0])
        elif name == "Rss" and inside:
            mapped += int(value.split()[0])
    return {"anonymous": round(anonymous * 1024 / 1e6, 1), "mapped files of the memory": round(mapped * 1024 / 1e6, 1)}


@contextlib.contextmanager
def real_shard(folder: Path, number: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start `ibidem shard`; yields its address and its process."""
    command = [sys.executable, "-m", "ibidem", "shard", "-m", str(folder), "--part", str(number)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--threads", "1"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("Serving part"))
        yield line.split(" on ")[1].split(" - ")[0], process
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    main()
