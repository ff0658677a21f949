"""The command line run in this process, through the very `main` that the installed command calls."""

from __future__ import annotations

import io
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from ibidem.memory import Memory


class Answer(NamedTuple):
    """What a command gave: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of stdout; only LF separates them."""
        assert self.out.endswith("\n") or not self.out
        return self.out.split("\n")[:-1]


Run = Callable[..., Answer]


@pytest.fixture
def ibidem(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command: ibidem("translate", "-m", folder, stdin="Hallo")."""
    from ibidem.cli import main

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what main changes

    def run(*arguments: object, stdin: str | bytes = b"") -> Answer:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["ibidem", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        capfdbinary.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with pytest.raises(SystemExit) as end:
                main()
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Answer(int(end.value.code or 0), out.decode(), err.decode())

    return run


@pytest.fixture
def fails(ibidem: Run) -> Run:
    """Runs a command that must fail with this code and one line on stderr, which is given back."""

    def run(code: int, *arguments: object, stdin: str | bytes = b"") -> str:
        answer = ibidem(*arguments, stdin=stdin)
        assert (answer.code, answer.out) == (code, ""), answer
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1, answer.err
        assert "Traceback" not in answer.err
        return answer.err

    return run


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Path:
    """A copy of the learnt memory that may be changed."""
    return Path(shutil.copytree(learnt.path, tmp_path / "memory"))


@pytest.fixture(scope="session")
def few_file(tmp_path_factory: pytest.TempPathFactory, sentences) -> Path:
    """Twenty short sentence pairs as a TSV."""
    file = tmp_path_factory.mktemp("few") / "few.tsv"
    rows = [s for s in sentences if len(s.german) < 50][:20]
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in rows), encoding="utf-8")
    return file
