"""Results: one JSON file a row, and beside it the counts and translations that its score came from.

A row that has a result is not measured again, wherever the file came from, so that results accumulate over calls
and machines. The counts (n-gram matches of every sentence) are what paired tests need; they hold no text.
Translations are kept for reading; they are derived from test sets and must not be published with them.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import IbidemError
from ibidem.reproduce.bootstrap import MATCHES, Difference, Resampled, compare_seeds, resample
from ibidem.reproduce.declaration import agrees, describe, digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.reproduce.rows.row import Measured, Row

Result = dict[str, Any]


class Results:
    """The folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows"
        self._known: dict[str, Result] = {}
        self._resampled: dict[str, Resampled] = {}

    def find(self, row: Row) -> Result | None:
        """A row's result; None where there is none, or where it was measured with other settings."""
        key = digest(row)
        if key not in self._known:
            file = self.rows / f"{key}.json"
            if not file.is_file():
                return None
            self._known[key] = _read(file)
        found = self._known[key]
        return found if agrees(found["row"], row) else None

    def put(self, row: Row, found: Measured) -> None:
        """Keep what a row found; the JSON comes last, and says that all is there."""
        self.rows.mkdir(parents=True, exist_ok=True)
        key = digest(row)
        if found.arrays:
            with (self.rows / f"{key}.npz").open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **found.arrays)
        if found.translations is not None:
            text = "".join(f"{line}\n" for line in found.translations).encode()
            (self.rows / f"{key}.txt.gz").write_bytes(gzip.compress(text, mtime=0))
        whole = {"digest": key, "row": describe(row), **found.figures}
        beside = self.rows / f".{key}.tmp"
        beside.write_text(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        beside.replace(self.rows / f"{key}.json")
        self._known.pop(key, None)

    def array(self, row: Row, name: str) -> NDArray[Any] | None:
        """An array that was kept beside a row's result, such as the matches of its translations; None if it is gone."""
        file = self.rows / f"{digest(row)}.npz"
        if not file.is_file():
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                return np.asarray(stored[name])
        except (OSError, ValueError, KeyError) as error:
            raise IbidemError(f"{file} cannot be read ({error}): remove it with its .json and run again.") from error

    def compare(self, baseline: Sequence[Row], system: Sequence[Row]) -> Difference | None:
        """By how much the mean BLEU of some runs is above that of others; None where none were run on one text."""
        runs = [[run for row in rows if (run := self._resample(row)) is not None] for rows in (baseline, system)]
        one_text = len({run.sentences for group in runs for run in group}) == 1
        return compare_seeds(*runs) if all(runs) and one_text else None

    def _resample(self, row: Row) -> Resampled | None:
        """A row's BLEU and that of its resamples, computed once; None where its counts are not kept."""
        key = digest(row)
        if key not in self._resampled:
            counts = None if self.find(row) is None else self.array(row, MATCHES)
            if counts is None:
                return None
            self._resampled[key] = resample(counts)
        return self._resampled[key]

    def translations(self, row: Row) -> list[str] | None:
        """A row's translations, if they are kept."""
        file = self.rows / f"{digest(row)}.txt.gz"
        if not file.is_file():
            return None
        return gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]


def _read(file: Path) -> Result:
    try:
        found: Result = json.loads(file.read_text("utf-8"))
        _ = found["row"], found["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise IbidemError(f"{file} is no result of a row ({error}): remove it and run again.") from error
    return found
