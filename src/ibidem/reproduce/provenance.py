"""Where a figure came from: commit, command, machine, texts and time."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibidem
from ibidem.evaluate import describe_machine
from ibidem.reproduce.declaration import digest

if TYPE_CHECKING:
    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.rows.row import Row

COMMIT = "IBIDEM_COMMIT"


def trace(bench: Workspace, row: Row, seconds: float) -> dict[str, Any]:
    """All that is needed to measure a row again, and to tell whether it was the same; no path of this machine."""
    texts = bench.read_texts(row.texts)
    for stage in row.stages:
        texts |= bench.texts(stage)
    setting = bench.setting
    seed = f" --seeds {row.seed}" if row.seed else ""
    quick = " --quick" if setting.smoke else " --data DATA"
    model = f" --model {bench.model_name}" if setting.model else ""
    return {
        "command": f"ibidem reproduce all --only {digest(row)}{seed}{quick}{model} --device {bench.device.type}",
        "commit": find_commit(),
        "ibidem": ibidem.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "side_by_side": 1 if row.alone else setting.jobs,
        "device": bench.device.type,
        "batch_size": bench.batch_size,
        "model": {
            "name": bench.model_name,
            "fingerprint": bench.model.fingerprint,
            "dimension": bench.model.dimension,
        },
        "texts": dict(sorted(texts.items())),
        "machine": describe_machine(),
        "smoke": setting.smoke,
    }


@cache
def find_commit() -> str | None:
    """The commit of this software: what IBIDEM_COMMIT says (for machines with a copy of the files only), else git's."""
    stated = os.environ.get(COMMIT)
    if stated:
        return stated
    folder = Path(ibidem.__file__).parent
    # An installed copy may lie inside a repository of somebody else.
    if not _ask_git(folder, "ls-files", "__init__.py"):
        return None
    return _ask_git(folder, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")


def _ask_git(folder: Path, *question: str) -> str | None:
    try:
        asked = ["git", "-C", str(folder), *question]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
