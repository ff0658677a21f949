"""After a kill, every pair whose addition returned is stored, and translations use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("writer_process.py")


class ForkServer:
    """The process that forks writers and readers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, command: str) -> int:
        """Start a child for a command and return its process number."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def answer(self) -> str:
        """Return the next line of the child."""
        return self._line()

    def end(self) -> tuple[list[str], int]:
        """Wait for the child to end; return its other lines and its exit status."""
        lines = []
        while not (line := self._line()).startswith("ended"):
            lines.append(line)
        return lines, int(line.split()[1])

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fork server has ended"
        return line.rstrip("\n")


@pytest.fixture
def server(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_folder: Path, sentences: list[Any]
) -> Iterator[ForkServer]:
    model = getattr(request, "param", None) or str(tiny_folder)
    pairs = [(s.german, s.english) for s in sentences] + [
        (f"{s.german} – Teil 2", f"{s.english} – Part 2") for s in sentences
    ]
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"{german}\t{english}\n" for german, english in pairs), "utf-8")
    command = [sys.executable, str(SCRIPT), model, str(tmp_path / "memory"), str(corpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield ForkServer(process)
        assert process.stdin is not None
        process.stdin.close()


def check_rounds(server: ForkServer, path: Path, rounds: int) -> None:
    """Kill writers after some confirmed pairs and a part of the time that the next pair would take."""
    random = Random(3)
    confirmed: set[int] = set()
    torn: set[int] = set()
    first, interval = 0, 0.1
    for number in range(rounds):
        child = server.start(f"add {first}")
        new = set()
        for _ in range((0, 1, 1, 3)[number % 4]):
            begun = time.monotonic()
            new.add(int(server.answer()))
            interval = time.monotonic() - begun
        time.sleep(random.uniform(0, 1.2) * interval)
        os.kill(child, signal.SIGKILL)
        printed, status = server.end()
        assert status == -signal.SIGKILL
        new |= {int(line) for line in printed}
        confirmed |= new
        if not confirmed:
            continue
        assert Memory.open(path).verify() == []
        asked = sorted(new or confirmed)[-2:]
        server.start(f"read {','.join(map(str, asked))}")
        lines, status = server.end()
        assert status == 0
        answer = json.loads(lines[-1])
        assert answer["stored"] == list(range(len(answer["stored"])))
        assert confirmed <= set(answer["stored"])
        torn |= {answer["stored"][-1]} - confirmed  # written, and killed before the confirmation
        assert set(answer["stored"]) == confirmed | torn
        for weights in answer["weights"]:
            assert max(weights) > 0.5
        first = len(answer["stored"])
    assert len(confirmed) >= rounds


@pytest.mark.timeout(120)
def test_confirmed_pairs_are_stored_and_used(server: ForkServer, tmp_path: Path) -> None:
    check_rounds(server, tmp_path / "memory", rounds=8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("server", ["shipped"], indirect=True)
def test_two_hundred_times_with_the_shipped_model(server: ForkServer, tmp_path: Path) -> None:
    check_rounds(server, tmp_path / "memory", rounds=200)
