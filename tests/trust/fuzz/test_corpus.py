"""The readers read the corpus of the fuzzer, which has seeds and former findings, within the bounds of its oracles."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("multipart")

from ibidem.text.formats import FORMATS

from . import readers
from .readers import TARGETS, Violation, check_input
from .run import ROOT, seed_folder


@pytest.mark.parametrize("target", [*TARGETS])
def test_corpus_is_read(target: str) -> None:
    seeds = sorted(seed_folder(target).iterdir())
    assert seeds, "a new format needs a seed"
    for seed in seeds:
        check_input(target, seed.read_bytes(), long=True)


def test_every_format_and_ending_is_a_target() -> None:
    for name, format in FORMATS.items():
        assert (f"{name}.document" in TARGETS) == (format.read_document is not None)
        assert (f"{name}.pairs" in TARGETS) == (format.read_pairs is not None)


def test_oracles_find_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Violation, match="took"), readers.bounded(-1.0):
        pass
    # An encoder that does not escape is found by the translations that contain syntax.
    from ibidem.text import po

    monkeypatch.setattr(po, "quote", lambda text, *_: f'"{text}"')
    with pytest.raises(Violation):
        check_input("po.document", (seed_folder("po.document") / "plain").read_bytes())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris")
def test_fuzzer_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--seconds", "30", "--executions", "300"]
    command += ["--only", "properties", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads((tmp_path / "counts.json").read_text("utf-8"))
    assert counts["properties.document"]["executions"] >= 300
    assert list((tmp_path / "corpus" / "properties.document").iterdir())
