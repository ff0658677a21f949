"""What a command imports before its first answer, and the message while it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ibidem.cli.console import shown_wait
from ibidem.learn import MemoryWriter, create_memory
from ibidem.model import load_model

if TYPE_CHECKING:
    from pathlib import Path

# Each of these takes a noticeable part of a second to import, and no translation needs it.
NOT_NEEDED = [
    "transformers",
    "torch._dynamo",
    "sympy",
    "scipy",
    "sklearn",
    "faiss",
    "sacremoses",
    "sacrebleu",
    "pandas",
    "networkx",
    "matplotlib",
    "huggingface_hub",
    "fastapi",
    "starlette",
    "uvicorn",
    "rich",
]
SCRIPT = """
import json, sys
from ibidem.cli import main
sys.argv = ["ibidem", "translate", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("with_memory", [False, True], ids=["model", "memory"])
def test_translate_imports_only_what_it_needs(tmp_path: Path, with_memory: bool) -> None:
    options: list[str] = []
    if with_memory:
        model = load_model(device="cpu", dtype="auto")
        create_memory(tmp_path / "memory", model)
        MemoryWriter(tmp_path / "memory", model).add_pair("Zwischenablage einfügen", "Paste from the clipboard")
        options = ["-m", str(tmp_path / "memory")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *options, "--device", "cpu"],
        input="Zwischenablage einfügen\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    imported = set(json.loads(done.stderr.splitlines()[-1]))
    assert "torch" in imported
    assert [name for name in NOT_NEEDED if name in imported] == []
    assert done.stdout == ("Paste from the clipboard\n" if with_memory else "Insert clipboard\n")


class Terminal:
    """A stderr that may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        self.written = ""
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self.written += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_wait_is_named_on_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    import threading

    screen = Terminal(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with shown_wait("Loading the memory…", seconds=0.0):
        for thread in threading.enumerate():
            if thread.name == "ibidem-wait":
                thread.join(10)
    assert screen.written == ("Loading the memory…\n" if terminal else "")
    with shown_wait("Loading the memory…", seconds=60.0):
        pass
    assert screen.written == ("Loading the memory…\n" if terminal else "")
    assert not any(thread.name == "ibidem-wait" and not thread.daemon for thread in threading.enumerate())
