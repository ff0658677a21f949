"""The tests find deliberate bugs: each is put into a copy of the sources, and the named tests must fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import ibidem

if TYPE_CHECKING:
    from .conftest import Budget

TESTS = Path(__file__).parents[1]
SOURCE = Path(ibidem.__file__).parent


class Bug(NamedTuple):
    """A change of the sources, and the tests that must find it."""

    file: str
    right: str
    wrong: str
    tests: str
    only: str = ""
    scale: str = "1"


BUGS = {
    "a file is not synced before its rename": Bug(
        "memory/files.py",
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.flush()\n",
        "trust/test_power_cuts.py",
    ),
    "the name of a committed file is not synced": Bug(
        "memory/files.py",
        "    try:\n        sync_directory(path.parent)\n    except OSError as error:\n        raise CommittedError(",
        "    try:\n        pass\n    except OSError as error:\n        raise CommittedError(",
        "trust/test_power_cuts.py",
    ),
    "a journal record is committed before it is synced": Bug(
        "memory/journal.py",
        "                os.fsync(descriptor)\n                if first:\n",
        "                if first:\n",
        "trust/test_power_cuts.py",
    ),
    "the checksum of a block is not compared": Bug(
        "memory/segment.py",
        "if zlib.crc32(content) != self._crcs[block]:",
        "if zlib.crc32(content) == -1:",
        "trust/test_damage.py",
    ),
    "the checksum of an artefact is not compared": Bug(
        "memory/files.py",
        "    if found.sha256 != sha256:\n",
        "    if not found.sha256:\n",
        "trust/test_damage.py",
        scale="3",
    ),
    "an old copy of the manifest is accepted": Bug(
        "memory/generations.py",
        "    if previous.generation > manifest.generation:\n",
        "    if previous.generation > manifest.generation + 1000:\n",
        "trust/test_damage.py",
        "swapped",
    ),
    "a record of a running writer is read": Bug(
        "memory/tail.py",
        "ended = read.end > end.bytes and not is_being_written(folder)",
        "ended = read.end > end.bytes",
        "trust/test_linearizability.py",
        scale="20",
    ),
    "changes are recorded without the lock": Bug(
        "memory/memory.py",
        "        with writer_lock(self.path, lock_timeout):\n",
        "        with contextlib.nullcontext():\n",
        "trust/test_linearizability.py",
        scale="5",
    ),
    "files of the previous generation are deleted at once": Bug(
        "memory/generations.py",
        "    files = [folder / MANIFEST, folder / PREVIOUS]\n",
        "    files = [folder / MANIFEST]\n",
        "trust/test_linearizability.py",
        scale="5",
    ),
    "ids of removed pairs are off by one": Bug(
        "memory/tail.py",
        "    added_and_removed = tail.first_id + np.flatnonzero(~tail.active)\n",
        "    added_and_removed = tail.first_id + 1 + np.flatnonzero(~tail.active)\n",
        "trust/test_model.py",
        scale="3",
    ),
    "a failed removal of a record is not reported": Bug(
        "memory/journal.py",
        "    except OSError:\n        return False\n    return True\n",
        "    except OSError:\n        return True\n    return True\n",
        "trust/test_faults.py",
        "add or remove or replace",
        scale="10",
    ),
    "a backup leaves the journal out": Bug(
        "memory/backup.py",
        "        replace_file(target / ENDS, encode_ends(state.ends))\n",
        "        replace_file(target / ENDS, encode_ends(type(state.ends)(state.ends.first, {})))\n",
        "trust/test_linearizability.py",
    ),
    "the candidate pool of the exact search is one too small": Bug(
        "retrieve/exact.py",
        "        wanted = k + k // 2 + 16\n",
        "        wanted = k - 1\n",
        "retrieve/test_exact.py",
    ),
    "a quote is not escaped in a document": Bug(
        "text/resources/json_file.py",
        'return file.encode(json.dumps("".join(map(_write, pieces)), ensure_ascii=escapes))',
        "return file.encode('\"' + \"\".join(map(_write, pieces)) + '\"')",
        "trust/fuzz/test_corpus.py",
        "json",
    ),
    "a table is read in more memory than it needs": Bug(
        "text/csv.py",
        "        yield row\n        row = []\n",
        "        yield row\n        row = [0 for _ in [b' ' * (1 << 28)] if False]\n",
        "trust/fuzz/test_corpus.py",
        "csv.document",
    ),
    "the removal of an origin leaves a pair": Bug(
        "memory/journal_writer.py",
        "            found = newest.find_origin(origin)\n",
        "            found = newest.find_origin(origin)[1:]\n",
        "trust/test_poisoned.py",
    ),
    "a cancellation is swallowed": Bug(
        "serve/jobs.py",
        "        if job.cancelled or self._closed:\n            raise JobStoppedError\n",
        "        if self._closed:\n            raise JobStoppedError\n",
        "serve/test_memories.py",
        "cancelled_import",
    ),
    "an import is acknowledged before it is on disk": Bug(
        "serve/jobs.py",
        "        _write_job(upload.path.parent, job)\n        with self._lock:\n",
        "        with self._lock:\n",
        "trust/test_server_kills.py",
        scale="3",
    ),
    "the scope of a key is not compared": Bug(
        "serve/auth.py",
        "        return _covers(self.scope, scope)\n",
        "        return scope in SCOPES\n",
        "serve/test_auth.py",
        "scope",
    ),
    "a line of the audit log is not synced": Bug(
        "serve/audit.py",
        "                os.fsync(self._descriptor)\n",
        "",
        "serve/test_audit.py",
        "complete_and_synced",
    ),
    "the old name of a moved memory is not removed durably": Bug(
        "memory/relocation.py",
        "            sync_directory(folder.parent)\n",
        "            pass\n",
        "memory/test_relocation.py",
    ),
    "the names in the folder of an adapted model are not synced": Bug(
        "learn/adapt/adaptation.py",
        "            sync_directory(place)\n",
        "            continue\n",
        "learn/adapt/test_adaptation.py",
        "general_parts",
    ),
}


def copy_sources(target: Path, bug: Bug) -> None:
    """Make a tree of links to the sources, in which one file is a changed copy."""
    shutil.copytree(SOURCE, target / "ibidem", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    content = (SOURCE / bug.file).read_text("utf-8")
    assert content.count(bug.right) == 1, f"{bug.file} was changed: write the bug anew"
    changed = target / "ibidem" / bug.file
    changed.unlink()
    changed.write_text(content.replace(bug.right, bug.wrong), "utf-8")


def test_bugs_fit_the_sources() -> None:
    for name, bug in BUGS.items():
        assert (SOURCE / bug.file).read_text("utf-8").count(bug.right) == 1, f"{name}: write the bug anew"
        assert (TESTS / bug.tests).is_file(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(scratch: Path, budget: Budget, name: str) -> None:
    bug = BUGS[name]
    copy_sources(scratch / "src", bug)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("IBIDEM_TRUST")}
    environment |= {"PYTHONPATH": str(scratch / "src"), "IBIDEM_TRUST_SCALE": bug.scale, "OMP_NUM_THREADS": "1"}
    environment["IBIDEM_TRUST_SHRINK"] = "0"  # the failure is enough, its smallest form is not wanted
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", "--tb=line", "-W", "ignore"]
    command += [
        "--basetemp",
        str(scratch / "temporary"),
        str(TESTS / bug.tests),
        *(["-k", bug.only] if bug.only else []),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1, f"{name} was not found:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
    assert " failed" in done.stdout
    budget.count("deliberate bugs found")
