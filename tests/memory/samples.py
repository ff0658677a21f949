"""Memories for the tests; as a script, a writer that the tests start, watch and kill."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ibidem.memory import Memory, ModelIdentity, SegmentData

IDENTITY = ModelIdentity("tiny", "model-a", "tokenizer-a", 4, 100, "de", "en")
MOMENT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)


def sample(number: int, pairs: int = 3, dimension: int = 4, width: int = 1) -> SegmentData:
    """The segment with this number, always the same; pair 1 has no entries; `width` repeats the texts."""
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
    """Every file of a memory but its lock, with its content."""
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def main(path: Path, task: str) -> None:
    """Append samples until killed ("append"), or hold the lock until killed ("hold"); tell each step."""
    with Memory.open(path).edit() as edit:
        print("ready", flush=True)
        while task == "append":
            number = len(edit.memory.manifest.segments) + 1
            edit.append_segment(sample(number))
            edit.put_artefact("index", "bin", b"index %d" % number, {"segments": number})
            edit.commit()
            print(number, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
