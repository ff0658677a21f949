"""The store of results, and the digests of the declarations that identify them.

A declaration is a frozen dataclass that defines a row or a stage. A row that has a result is not measured again, so
that results accumulate over calls and machines. RESULTS/rows holds DIGEST.json with the figures and their provenance,
DIGEST.npz with arrays such as the n-gram counts of every sentence, which paired tests need, and DIGEST.txt.gz with the
translations. Translations are derived from test sets and must not be published. `python -m ibidem.reproduce.results
RESULTS` moves all but the translations of test sets into RESULTS/rows/rows.jsonl.xz, which tables can be written from.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import lzma
import math
import os
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import ibidem
from ibidem.errors import IbidemError, UsageError
from ibidem.evaluate import Difference, Resampled, compare_runs, resample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ibidem.reproduce.rows import Measured, Row
    from ibidem.reproduce.workspace import Workspace


def describe(declaration: Any) -> Any:
    """Convert a declaration with all its settings to plain JSON values; the key `is` holds the class name.

    Args:
        declaration: A dataclass, a sequence of them, or a plain value.

    Returns:
        Values for `json.dumps`; infinity and NaN become strings.
    """
    if is_dataclass(declaration) and not isinstance(declaration, type):
        settings = {field.name: describe(getattr(declaration, field.name)) for field in fields(declaration)}
        return {"is": type(declaration).__name__, **settings}
    if isinstance(declaration, list | tuple):
        return [describe(part) for part in declaration]
    if isinstance(declaration, float) and not math.isfinite(declaration):
        return str(declaration)  # JSON has no number for it
    return declaration


def digest(declaration: Any, *environment: object) -> str:
    """Hash the settings of a declaration that differ from their defaults.

    Settings at their defaults are left out, so that a setting added to the software later does not change the digest
    of what was measured before; `agrees` finds a default that has changed.

    Args:
        declaration: A frozen dataclass, or a nested sequence of them.
        environment: Further JSON values that the digest depends on, such as the model's fingerprint.

    Returns:
        16 hexadecimal digits.

    Examples:
        >>> digest((1, 2)) == digest([1, 2]), len(digest("it"))
        (True, 16)
    """
    plain = json.dumps([_distinct(declaration), *environment], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def agrees(stored: Any, declaration: Any) -> bool:
    """Return whether a stored description and a declaration agree in every setting that both have.

    Args:
        stored: What `describe` returned when the result was stored, read from JSON.
        declaration: The declaration of now.
    """
    return _agree(stored, json.loads(json.dumps(describe(declaration))))


def _agree(stored: Any, now: Any) -> bool:
    if isinstance(stored, dict) and isinstance(now, dict):
        return all(_agree(stored[name], now[name]) for name in stored.keys() & now.keys())
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_agree, stored, now))
    return bool(stored == now)


def _distinct(declaration: Any) -> Any:
    if is_dataclass(declaration) and not isinstance(declaration, type):
        kept = {}
        for field in fields(declaration):
            value = getattr(declaration, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if default is MISSING or value != default:
                kept[field.name] = _distinct(value)
        return {"is": type(declaration).__name__, **kept}
    if isinstance(declaration, list | tuple):
        return [_distinct(part) for part in declaration]
    return declaration


Result = dict[str, Any]
# Name of the array of counts that is stored with a result.
MATCHES = "bleu"
ROWS = "rows"
ARCHIVE = "rows.jsonl.xz"
COMMIT = "IBIDEM_COMMIT"
# The class of the rows whose translations are of our own sentences, and may be published.
_OWN = "OwnTranslation"


class ArchivedRow(NamedTuple):
    """A row in the archive.

    Attributes:
        result: Figures, declaration and digest of the row.
        arrays: Arrays by name, such as n-gram counts.
        translations: Translations of our own sentences; None for other texts, which must not be published.
    """

    result: Result
    arrays: Mapping[str, NDArray[Any]]
    translations: list[str] | None


class Results:
    """Read and write the results of rows in a folder.

    Args:
        folder: Results folder; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / ROWS
        self._read: dict[str, Result] = {}
        self._resampled: dict[str, Resampled] = {}

    def find(self, row: Row) -> Result | None:
        """Return the result of a row.

        Args:
            row: The row.

        Returns:
            None where there is no result, or where it was measured with other settings.

        Raises:
            IbidemError: The file of the result is damaged.
        """
        key = digest(row)
        if key not in self._read:
            file = self.rows / f"{key}.json"
            if file.is_file():
                self._read[key] = read_result(file)
            elif key in self._archived:
                self._read[key] = self._archived[key].result
            else:
                return None
        found = self._read[key]
        return found if agrees(found["row"], row) else None

    def put(self, row: Row, found: Measured) -> None:
        """Store what a row measured; the JSON is written last, so that its existence means that all is there.

        Args:
            row: The row.
            found: Its figures, arrays and translations.
        """
        self.rows.mkdir(parents=True, exist_ok=True)
        key = digest(row)
        if found.arrays:
            with (self.rows / f"{key}.npz").open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **found.arrays)
        if found.translations is not None:
            text = "".join(f"{line}\n" for line in found.translations).encode()
            (self.rows / f"{key}.txt.gz").write_bytes(gzip.compress(text, mtime=0))
        whole = {"digest": key, "row": describe(row), **found.figures}
        temporary = self.rows / f".{key}.tmp"
        temporary.write_text(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(self.rows / f"{key}.json")
        self._read.pop(key, None)

    def array(self, row: Row, name: str) -> NDArray[Any] | None:
        """Return an array that is stored with a row's result, such as its n-gram counts; None where it is missing.

        Args:
            row: The row.
            name: Name of the array, such as MATCHES.
        """
        key = digest(row)
        file = self.rows / f"{key}.npz"
        if file.is_file():
            return read_arrays(file).get(name)
        return self._archived[key].arrays.get(name) if key in self._archived else None

    def translations(self, row: Row) -> list[str] | None:
        """Return a row's translations; None where they are not stored.

        Args:
            row: A row that translates.
        """
        key = digest(row)
        file = self.rows / f"{key}.txt.gz"
        if file.is_file():
            return read_translations(file)
        return self._archived[key].translations if key in self._archived else None

    def compare(self, baseline: Sequence[Row], system: Sequence[Row]) -> Difference | None:
        """Compare the mean BLEU of two groups of runs; None where a group has none, or where the texts differ.

        Runs are paired by seed where both systems share a stage, such as the compactor and combiner of a pruned memory.

        Args:
            baseline: Rows of the baseline, one for each seed.
            system: Rows of the system, one for each seed.
        """
        runs = [self._resample_all(rows) for rows in (baseline, system)]
        one_text = len({run.sentences for group in runs for run in group}) == 1
        if not all(runs) or not one_text:
            return None
        return compare_runs(*runs, paired=self._is_paired(baseline, system))

    def compare_averages(self, columns: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> Difference | None:
        """Compare the averages of two systems over several test sets.

        Args:
            columns: Rows of the baseline and of the system on each test set, one for each seed. Test sets where one of
                them has no result are left out.

        Returns:
            The difference of the averages; None where fewer than two test sets are left.
        """
        run = [column for column in columns if all(self._resample_all(rows) for rows in column)]
        if len(run) < 2:
            return None
        groups = [[self._resample_all(rows) for rows in column] for column in run]
        sentences = sum(found[0][0].sentences for found in groups)
        systems = []
        for place in range(2):
            seeds = zip(*(found[place] for found in groups), strict=False)
            systems.append(
                [
                    Resampled(sentences, float(np.mean([r.score for r in runs])), np.mean([r.samples for r in runs], 0))
                    for runs in seeds
                ]
            )
        return compare_runs(*systems, paired=all(self._is_paired(*column) for column in run))

    def _resample_all(self, rows: Sequence[Row]) -> list[Resampled]:
        """Resample the rows of one system that have results."""
        return [run for row in rows if (run := self._resample(row)) is not None]

    def _is_paired(self, baseline: Sequence[Row], system: Sequence[Row]) -> bool:
        """Return whether all rows have results, and those of each seed share a stage."""
        if len(baseline) != len(system) or any(self._resample(row) is None for row in (*baseline, *system)):
            return False
        return all(set(first.stages) & set(second.stages) for first, second in zip(baseline, system, strict=True))

    def _resample(self, row: Row) -> Resampled | None:
        """Compute a row's BLEU and that of its resamples once; None where its counts are missing."""
        key = digest(row)
        if key not in self._resampled:
            counts = None if self.find(row) is None else self.array(row, MATCHES)
            if counts is None:
                return None
            [self._resampled[key]] = resample([counts])
        return self._resampled[key]

    @cached_property
    def _archived(self) -> dict[str, ArchivedRow]:
        return read_archive(self.rows / ARCHIVE)


def read_result(file: Path) -> Result:
    """Read the JSON file of a row.

    Args:
        file: A file that `Results.put` wrote.

    Raises:
        IbidemError: The file is no result of a row.
    """
    try:
        found: Result = json.loads(file.read_text("utf-8"))
        _ = found["row"], found["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise IbidemError(f"{file} is no result of a row ({error}): remove it and run again.") from error
    return found


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays that are stored with a result.

    Args:
        file: A file that `Results.put` wrote.

    Returns:
        The arrays by name.

    Raises:
        IbidemError: The file cannot be read.
    """
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: np.asarray(stored[name]) for name in stored}
    except (OSError, ValueError) as error:
        raise IbidemError(f"{file} cannot be read ({error}): remove it with its .json and run again.") from error


def read_translations(file: Path) -> list[str]:
    """Read the translations that are stored with a result.

    Args:
        file: A file that `Results.put` wrote.
    """
    return gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]


def read_archive(file: Path) -> dict[str, ArchivedRow]:
    """Read all rows of an archive, by digest; empty where there is no such file.

    Args:
        file: Path of the archive.

    Raises:
        IbidemError: The file is no archive of rows.
    """
    if not file.is_file():
        return {}
    rows = {}
    try:
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                whole = json.loads(line)
                arrays = {name: _decode_array(name, stored) for name, stored in whole.get("arrays", {}).items()}
                rows[whole["result"]["digest"]] = ArchivedRow(whole["result"], arrays, whole.get("translations"))
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError) as error:
        raise IbidemError(f"{file} is no archive of rows ({error}): restore it from its source.") from error
    return rows


def write_archive(file: Path, rows: Mapping[str, ArchivedRow]) -> None:
    """Write rows into an archive, a line of JSON for each; rows of similar names are neighbours and compress well.

    Args:
        file: Path of the archive, which is replaced in one step.
        rows: Rows by digest.
    """
    temporary = file.with_suffix(".tmp")
    with lzma.open(temporary, "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8", newline="\n") as lines:
        for row in sorted(rows.values(), key=lambda row: (row.result["name"], row.result["digest"])):
            whole: dict[str, Any] = {"result": row.result}
            if row.arrays:
                whole["arrays"] = {name: _encode_array(name, array) for name, array in row.arrays.items()}
            if row.translations is not None:
                whole["translations"] = row.translations
            lines.write(json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
    temporary.replace(file)


def pack_rows(folder: Path) -> int:
    """Move all rows of a results folder into its archive.

    Translations of test sets stay where they are.

    Args:
        folder: Results folder.

    Returns:
        The number of rows in the archive.

    Raises:
        UsageError: The folder holds no rows.
    """
    rows = folder / ROWS
    packed = read_archive(rows / ARCHIVE)
    loose = sorted(rows.glob("*.json"))
    for file in loose:
        result, arrays, text = read_result(file), file.with_suffix(".npz"), file.with_suffix(".txt.gz")
        own = result["row"]["is"] == _OWN and text.is_file()
        packed[result["digest"]] = ArchivedRow(
            result, read_arrays(arrays) if arrays.is_file() else {}, read_translations(text) if own else None
        )
    if not packed:
        raise UsageError(f"{folder} holds no rows: give a folder that `ibidem reproduce --results` has written.")
    write_archive(rows / ARCHIVE, packed)
    for file in loose:
        file.unlink()
        file.with_suffix(".npz").unlink(missing_ok=True)
        if packed[file.stem].translations is not None:
            file.with_suffix(".txt.gz").unlink()
    return len(packed)


def _encode_array(name: str, array: NDArray[Any]) -> Any:
    if name == MATCHES:
        return array[:, :6].tolist()  # the number of n-grams follows from the length
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": str(array.dtype), "shape": array.shape, "base64": content}


def _decode_array(name: str, stored: Any) -> NDArray[Any]:
    if name == MATCHES:
        counts = np.array(stored, np.int64).reshape(-1, 6)
        totals = np.maximum(counts[:, :1] - np.arange(4), 0)
        return np.concatenate([counts, totals], axis=1)
    content = np.frombuffer(base64.b64decode(stored["base64"]), stored["dtype"])
    return content.reshape(stored["shape"])


def trace(workspace: Workspace, row: Row, seconds: float) -> dict[str, Any]:
    """Describe how a row was measured: command, commit, time, device, model, texts and machine, without local paths.

    Args:
        workspace: Workspace in which the row was measured.
        row: The row.
        seconds: Time of the measurement.

    Returns:
        JSON values that are stored with the result.
    """
    from ibidem.evaluate import describe_machine

    texts = workspace.read_texts(row.texts)
    for stage in row.stages:
        texts |= workspace.texts(stage)
    setting = workspace.setting
    seed = f" --seeds {row.seed}" if row.seed else ""
    quick = " --quick" if setting.smoke else " --data DATA"
    model = f" --model {workspace.model_name}" if setting.model else ""
    return {
        "command": f"ibidem reproduce all --only {digest(row)}{seed}{quick}{model} --device {workspace.device.type}",
        "commit": find_commit(),
        "ibidem": ibidem.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "side_by_side": 1 if row.alone else setting.jobs,
        "device": workspace.device.type,
        "batch_size": workspace.batch_size,
        "model": {
            "name": workspace.model_name,
            "fingerprint": workspace.model.fingerprint,
            "dimension": workspace.model.dimension,
        },
        "texts": dict(sorted(texts.items())),
        "machine": describe_machine(),
        "smoke": setting.smoke,
    }


@cache
def find_commit() -> str | None:
    """Return the commit of this software: the variable IBIDEM_COMMIT, for machines without the repository, or git's."""
    stated = os.environ.get(COMMIT)
    if stated:
        return stated
    folder = Path(ibidem.__file__).parent
    # An installed copy may lie inside the repository of another project.
    if not _run_git(folder, "ls-files", "__init__.py"):
        return None
    return _run_git(folder, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {pack_rows(Path(name))} rows in {ROWS}/{ARCHIVE}")
