"""Kills of workers, nodes and drivers at random moments, on a local executor and on a Ray cluster of two nodes.

IBIDEM_KILLS and IBIDEM_KILLS_SECONDS set the number of kills and the time; IBIDEM_KILLS_REPORT names a file for the
report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from learn.jobs import configurations

SCRIPT = Path(configurations.__file__).with_name("kills.py")


@pytest.mark.slow
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("on", ["local", "ray", "ray-head"])
def test_kills_change_nothing(on: str, tmp_path: Path, tiny_folder: Path, sentences: list[Any]) -> None:
    if on != "local" and find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ibidem[ray]'")
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences[:120]), encoding="utf-8")
    kills = 1 if on == "ray-head" else int(os.environ.get("IBIDEM_KILLS", "50"))
    seconds = int(os.environ.get("IBIDEM_KILLS_SECONDS", "3000"))
    arguments = [str(tiny_folder), str(corpus), str(tmp_path / "scratch"), "1", str(kills), str(seconds), on]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    report = json.loads(done.stdout.splitlines()[-1])
    if "IBIDEM_KILLS_REPORT" in os.environ:
        with Path(os.environ["IBIDEM_KILLS_REPORT"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
    assert report["failures"] == []
    assert report["kills"] >= min(kills, 5)
