"""Added, killed, opened again, translated: every pair whose addition returned is there, and is used."""

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

ZYGOTE = Path(__file__).with_name("scribe_zygote.py")


class Zygote:
    """The other process, and what it has promised so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, command: str) -> int:
        """The number of the child that does this."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def answer(self) -> str:
        """A line of the child."""
        return self._line()

    def end(self) -> tuple[list[str], int]:
        """What else the child has printed, and its exit status."""
        lines = []
        while not (line := self._line()).startswith("ended"):
            lines.append(line)
        return lines, int(line.split()[1])

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the zygote has died"
        return line.rstrip("\n")


@pytest.fixture
def zygote(request: pytest.FixtureRequest, tmp_path: Path, tiny_folder: Path, sentences: list[Any]) -> Iterator[Zygote]:
    model = getattr(request, "param", None) or str(tiny_folder)
    pairs = [(s.german, s.english) for s in sentences] + [
        (f"{s.german} – Teil 2", f"{s.english} – Part 2") for s in sentences
    ]
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"{german}\t{english}\n" for german, english in pairs), "utf-8")
    command = [sys.executable, str(ZYGOTE), model, str(tmp_path / "memory"), str(corpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()


def check_rounds(zygote: Zygote, path: Path, rounds: int) -> None:
    """Kill a writer that often, after some promises and a part of the time that the next one would take."""
    random = Random(3)
    promised: set[int] = set()
    torn: set[int] = set()
    first, interval = 0, 0.1
    for number in range(rounds):
        child = zygote.start(f"add {first}")
        new = set()
        for _ in range((0, 1, 1, 3)[number % 4]):
            begun = time.monotonic()
            new.add(int(zygote.answer()))
            interval = time.monotonic() - begun
        time.sleep(random.uniform(0, 1.2) * interval)
        os.kill(child, signal.SIGKILL)
        printed, status = zygote.end()
        assert status == -signal.SIGKILL
        new |= {int(line) for line in printed}
        promised |= new
        if not promised:
            continue
        assert Memory.open(path).verify() == []
        asked = sorted(new or promised)[-2:]
        zygote.start(f"read {','.join(map(str, asked))}")
        lines, status = zygote.end()
        assert status == 0
        answer = json.loads(lines[-1])
        assert answer["stored"] == list(range(len(answer["stored"])))
        assert promised <= set(answer["stored"])
        torn |= {answer["stored"][-1]} - promised  # written, and killed before it could say so
        assert set(answer["stored"]) == promised | torn
        for votes in answer["votes"]:
            assert max(votes) > 0.5
        first = len(answer["stored"])
    assert len(promised) >= rounds


@pytest.mark.timeout(120)
def test_what_was_promised_is_there_and_used(zygote: Zygote, tmp_path: Path) -> None:
    check_rounds(zygote, tmp_path / "memory", rounds=8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zygote", ["shipped"], indirect=True)
def test_two_hundred_times_with_the_shipped_model(zygote: Zygote, tmp_path: Path) -> None:
    check_rounds(zygote, tmp_path / "memory", rounds=200)
