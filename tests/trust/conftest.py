"""The budget of the trust tests: seeds, rounds and time come from environment variables.

IBIDEM_TRUST_SEED (1) is the seed of every random draw. IBIDEM_TRUST_SCALE (1) multiplies the rounds of every test.
IBIDEM_TRUST_SECONDS (unset) ends the rounds of each test after this time. IBIDEM_TRUST_REPORT (unset) names a JSON file
that receives the counts of the run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTS: Counter[str] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.trust)
            if "IBIDEM_TRUST_SCALE" in os.environ or "IBIDEM_TRUST_SECONDS" in os.environ:
                item.add_marker(pytest.mark.timeout(0))


def pytest_sessionfinish() -> None:
    report = os.environ.get("IBIDEM_TRUST_REPORT")
    if report and _COUNTS:
        file = Path(report)
        with FileLock(f"{report}.lock"):  # processes of pytest-xdist share the report
            before = json.loads(file.read_text("utf-8")) if file.exists() else {}
            total = Counter(before) + _COUNTS
            file.write_text(json.dumps(dict(sorted(total.items())), indent=2) + "\n", "utf-8")


class Budget:
    """The seed, the rounds and the time of a test."""

    def __init__(self, name: str) -> None:
        self.seed = int(os.environ.get("IBIDEM_TRUST_SEED", "1"))
        self.scale = float(os.environ.get("IBIDEM_TRUST_SCALE", "1"))
        self.random = Random(f"{name} {self.seed}")
        seconds = os.environ.get("IBIDEM_TRUST_SECONDS")
        self._end = time.monotonic() + float(seconds) if seconds else None

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._end is not None and time.monotonic() > self._end

    def rounds(self, count: int) -> Iterator[int]:
        """Yield the numbers of the rounds: `count` times the scale, as long as there is time; at least one."""
        for number in range(max(1, round(count * self.scale))):
            if number and self.over:
                return
            yield number

    def chosen(self, total: int, count: int) -> list[int]:
        """Return `count` times the scale of the numbers below `total`, or all of them, in random order."""
        wanted = min(total, max(1, round(count * self.scale)))
        return self.random.sample(range(total), wanted)

    @staticmethod
    def count(name: str, number: int = 1) -> None:
        """Add to a count of the report."""
        _COUNTS[name] += number


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Budget:
    return Budget(request.node.name)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of syncs would wear a disk, and a kill does not lose a page."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="ibidem-trust-", dir=place))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
