"""Measure latency and throughput of the server under concurrent clients, as ratios to direct calls of the library.

    python benchmarks/serving.py --text test.de.xz test.en.xz --sentences 400 [-m memories/it]

In every round the library translates all sentences in batches, and a few of them one by one. Then a client process
with 1, 8 and 32 connections sends each sentence in its own request; a connection sends the next request after the
answer to the last one. The server's throughput is divided by that of the library in batches, or, for one client, one by
one; its median latency is divided by that of the library for one sentence. Ratios are computed within a round, because
the load of the machine affects both; their medians are reported. The report also has sentences per second of processor
time, which other programs affect less, and the load of the machine in each round.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_RATE = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", action="append", default=[])
    parser.add_argument("--text", nargs="+", help="parallel text; its sources are translated")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--alone", type=int, default=40, help="number of sentences to translate one by one")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        json.dump(send_requests(arguments.load, json.load(sys.stdin), arguments.clients[0]), sys.stdout)
        return
    print(json.dumps(measure(arguments), indent=2))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all rounds and return them with the median ratios."""
    import torch

    from ibidem.decode import Translator
    from ibidem.evaluate import describe_machine
    from ibidem.serve import Limits, ServeSettings, make_service, running
    from ibidem.text import Corpus

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    translator = Translator(
        memory=arguments.memory,
        batch_size=arguments.batch_size,
        device=arguments.device,
        dtype=arguments.dtype,
    )
    pairs = itertools.islice(Corpus(arguments.text), arguments.sentences)
    sentences = [pair.source for pair in pairs]
    few = sentences[:: max(1, len(sentences) // arguments.alone)]
    settings = ServeSettings(Limits(rate=_RATE, burst=10**9, queue_characters=10**9, wait_seconds=1e9))
    rounds = []
    with running(make_service(translator, settings)) as url:
        translator.translate(sentences[: 2 * arguments.batch_size])  # warm up
        for number in range(arguments.rounds):
            found: dict[str, Any] = {"load": os.getloadavg()[0], **call_library(translator, sentences, few)}
            for clients in arguments.clients:
                texts = few if clients == 1 else sentences
                batches = count_batches(url)
                began = time.process_time()
                found[str(clients)] = start_clients(url, texts, clients)
                spent = time.process_time() - began
                found[str(clients)]["sentences_per_cpu_second"] = len(texts) / spent
                found[str(clients)]["sentences_per_batch"] = len(texts) / (count_batches(url) - batches)
            rounds.append(found)
            print(f"round {number + 1}: {json.dumps(found)}", file=sys.stderr)
    return {
        "sentences": len(sentences),
        "memory_entries": [memory.entries for memory in translator.memories],
        "batch_size": arguments.batch_size,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "ratios": {str(clients): compare(rounds, str(clients)) for clients in arguments.clients},
        "machine": describe_machine(),
    }


def call_library(translator: Any, sentences: Sequence[str], few: Sequence[str]) -> dict[str, dict[str, float]]:
    """Time the library with all sentences in batches, and with a few one by one."""
    return {
        "batches": time_calls(translator.translate, [sentences]),
        "alone": time_calls(translator.translate, [[sentence] for sentence in few]),
    }


def time_calls(translate: Any, calls: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return sentences per second of elapsed and of processor time, and the median seconds of a call."""
    began, began_cpu = time.perf_counter(), time.process_time()
    seconds = []
    for texts in calls:
        call = time.perf_counter()
        translate(texts)
        seconds.append(time.perf_counter() - call)
    count = sum(map(len, calls))
    return {
        "sentences_per_second": count / (time.perf_counter() - began),
        "sentences_per_cpu_second": count / (time.process_time() - began_cpu),
        "median_seconds": statistics.median(seconds),
    }


def count_batches(url: str) -> int:
    """Return the number of batches that the server has decoded."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    return int(float(figures["ibidem_batch_lines_count"]))


def start_clients(url: str, sentences: Sequence[str], clients: int) -> dict[str, float]:
    """Run the clients in another process, so that they do not share the server's interpreter lock."""
    done = subprocess.run(
        [sys.executable, __file__, "--load", url, "--clients", str(clients)],
        input=json.dumps(list(sentences)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def send_requests(url: str, sentences: Sequence[str], clients: int) -> dict[str, float]:
    """Send every sentence once over this many connections."""
    waiting = iter(sentences)
    lock = threading.Lock()
    seconds: list[float] = []

    def work() -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        while True:
            with lock:
                sentence = next(waiting, None)
            if sentence is None:
                return
            body = json.dumps({"q": sentence, "source": "de", "target": "en"})
            began = time.perf_counter()
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the server answered {answer.status}")
            seconds.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    if len(seconds) != len(sentences):
        raise RuntimeError("a client failed")
    ordered = sorted(seconds)
    return {
        "sentences_per_second": len(sentences) / elapsed,
        "median_seconds": statistics.median(ordered),
        "p95_seconds": ordered[int(0.95 * (len(ordered) - 1))],
    }


def compare(rounds: Sequence[dict[str, Any]], clients: str) -> dict[str, float]:
    """Return the medians over the rounds of the server's figures divided by those of the library."""
    base = "alone" if clients == "1" else "batches"
    baselines = {"sentences_per_second": base, "sentences_per_cpu_second": base, "median_seconds": "alone"}
    return {
        name: statistics.median(found[clients][name] / found[baseline][name] for found in rounds)
        for name, baseline in baselines.items()
    }


if __name__ == "__main__":
    main()
