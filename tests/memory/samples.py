"""Memories for the tests; as a script, a writer that the tests start, watch and kill."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from ibidem.memory import COMPACTOR_ARTEFACT, KeyCoding, Memory, ModelIdentity, SegmentData
from ibidem.memory.generations import encode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from ibidem.memory import Edit


IDENTITY = ModelIdentity("tiny", "model-a", "tokenizer-a", 4, 100, "de", "en")
MOMENT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)

Row = tuple[str, str, str, int, list[int], list[list[float]], list[int]]

JOURNAL = "journals/000001.log"
ENDS = "journals.json"


def sample(number: int, pairs: int = 3, dimension: int = 4, width: int = 1) -> SegmentData:
    """Return the segment of a number, always the same; pair 1 has no entries; `width` repeats the texts."""
    random = np.random.default_rng(number)
    lengths = random.integers(1, 5, pairs)
    lengths[1:2] = 0
    entries = int(lengths.sum())
    return SegmentData(
        keys=random.standard_normal((entries, dimension)).astype(np.float16),
        values=random.integers(0, 100, entries, dtype=np.int32),
        log_probs=-random.random(entries, dtype=np.float32),
        lengths=lengths,
        sources=[f"Quelle {number}.{pair} ä " * width for pair in range(pairs)],
        targets=[f"target {number}.{pair} 한 " * width for pair in range(pairs)],
        origins=[f"file-{(number + pair) % 3}.tsv" for pair in range(pairs)],
        locations=[100 * number + pair for pair in range(pairs)],
        source_vectors=random.integers(-127, 128, (pairs, 64), dtype=np.int8),
    )


def append(path: Path, *numbers: int) -> Memory:
    """Commit the sample segments with these numbers, each as a generation, and an artefact with each."""
    memory = Memory.open(path)
    with memory.edit() as edit:
        for number in numbers:
            edit.append_segment(sample(number))
            edit.put_artefact("index", "bin", b"index %d" % number, {"segments": number})
            memory = edit.commit(MOMENT)
    return memory


def check_prefix(memory: Memory) -> int:
    """Check that a memory holds exactly the samples 1 to n, and return n."""
    count = len(memory.manifest.segments)
    expected = [sample(number) for number in range(1, count + 1)]
    sentences = list(memory.sentences())
    assert [pair.source for pair in sentences] == [text for data in expected for text in data.sources]
    assert [pair.origin for pair in sentences] == [name for data in expected for name in data.origins]
    assert memory.values().tolist() == [value for data in expected for value in data.values.tolist()]
    for data, start in zip(expected, np.cumsum([0] + [data.entries for data in expected]).tolist(), strict=False):
        np.testing.assert_array_equal(memory.keys.read(start, start + data.entries), data.keys)
    if count:
        artefact = memory.artefact("index")
        assert artefact is not None
        assert artefact.path.read_bytes() == b"index %d" % count
    return count


def files_of(path: Path) -> dict[str, bytes]:
    """Return the content of every file of a memory except the lock."""
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def one(number: int, *, pairs: int = 1, compact: int | None = None, keys: bool = True) -> SegmentData:
    """Return pairs to add, always the same for a number."""
    data = sample(number, pairs=pairs)
    wide = None if compact is None else np.full((data.entries, compact), number, np.int8)
    return replace(data, keys=data.keys if keys else None, compact=wide)


def record(path: Path, added: SegmentData | None = None, removed: tuple[int, ...] = ()) -> Memory:
    with Memory.open(path).writing() as writer:
        return writer.record(added, removed)


def rows(memory: Memory) -> dict[int, Row]:
    """Return all data of every pair by id; entries are read by their numbers."""
    keys = np.concatenate([memory.keys.read(0, memory.entries), memory.tail_keys()])
    values = np.concatenate([memory.values(), memory.tail.values])
    vectors, sentences = memory.source_vectors(), memory.sentence_of_entries()
    assert (len(vectors), len(sentences)) == (memory.pairs + memory.tail.pairs, len(values))
    found = {}
    for pair in memory.sentences():
        span = slice(pair.entries.start, pair.entries.stop)
        found[pair.id] = (
            *(pair.source, pair.target, pair.origin, pair.location),
            values[span].tolist(),
            keys[span].tolist(),
            vectors[memory.number_of(pair.id)].tolist(),
        )
        assert (sentences[span] == memory.number_of(pair.id)).all()
        for position, entry in enumerate(pair.entries):
            assert memory.locate(entry) == (memory.number_of(pair.id), position)
        number = memory.number_of(pair.id)
        assert memory.sentence(number) == pair
        assert memory.tokens_of(number).tolist() == values[span].tolist()
    assert len(found) == memory.active_pairs
    return found


def rows_of(data: SegmentData, first_id: int) -> dict[int, Row]:
    offsets = data.offsets()
    assert data.keys is not None
    return {
        first_id + i: (
            *(data.sources[i], data.targets[i], data.origins[i], data.locations[i]),
            data.values[offsets[i] : offsets[i + 1]].tolist(),
            data.keys[offsets[i] : offsets[i + 1]].tolist(),
            data.stored_source_vectors()[i].tolist(),
        )
        for i in range(data.pairs)
    }


def pairs_of(memory: Memory) -> dict[int, tuple[Any, ...]]:
    return {pair.id: (pair.source, pair.target, pair.origin, pair.location) for pair in memory.sentences()}


class Case(NamedTuple):
    """A memory with three records in its journal, the files after each of them, and the ends of the records."""

    path: Path
    states: list[dict[str, bytes]]
    places: list[int]


def flips(content: bytes, places: range) -> Iterator[bytes]:
    """Yield the content with one bit flipped, for each of these bytes; the bit differs from byte to byte."""
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


def put_coding(edit: Edit, width: int) -> None:
    """Store a compactor's file whose codes are the components of compact keys themselves."""
    coding = KeyCoding(np.zeros(width, np.float32), np.ones(width, np.float32))
    edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", save(coding.tensors()), {})


def hook(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Call `act` before each step that makes something durable: fsync, rename, mkdir."""
    for owner, name in ((os, "fsync"), (os, "replace"), (Path, "mkdir")):
        real = getattr(owner, name)

        def step(*args: object, _real: object = real, _name: str = name, **kwargs: object) -> object:
            # The lock calls mkdir for its existing folder, which changes nothing on disk.
            if _name != "mkdir" or not args[0].is_dir():  # type: ignore[attr-defined]
                act(_name)
            return _real(*args, **kwargs)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, step)


class Document:
    """JSON that is encoded like a manifest, without checks."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def to_json(self) -> dict[str, Any]:
        return self._value


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest's JSON and write it with a valid checksum."""
    file = path / "manifest.json"
    document = json.loads(file.read_text("utf-8"))
    del document["checksum"]
    change(document)
    file.write_bytes(encode_manifest(Document(document)))


def main(path: Path, task: str) -> None:
    """Append samples until killed ("append", or "append slowly"), or hold the lock ("hold"); print each step.

    With pauses, a memory stays small enough to be copied between two commits, however long the test takes.
    """
    with Memory.open(path).edit() as edit:
        print("ready", flush=True)
        while task != "hold":
            number = len(edit.memory.manifest.segments) + 1
            edit.append_segment(sample(number))
            edit.put_artefact("index", "bin", b"index %d" % number, {"segments": number})
            edit.commit()
            print(number, flush=True)
            if task == "append slowly":
                time.sleep(0.02 * number)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
