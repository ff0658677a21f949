"""Every kind of damage to every file is found before the content is used, and the message names the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import Memory, back_up, repair_folder, verify_folder

from .workload import IDENTITY, append, make_base, pairs, prune, read_all, record, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from .conftest import Budget

BLOCK = 1 << 20
# Files whose content no reader uses.
UNUSED = ("lock", "lock.holder", "README.md")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in UNUSED)


def flip(content: bytes, random: Random) -> bytes | None:
    if not content:
        return None
    changed = bytearray(content)
    changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(changed)


def zero_block(content: bytes, random: Random) -> bytes | None:
    start = random.randrange(max(1, len(content)))
    stop = min(len(content), start + random.choice([1, 16, 512, 4096]))
    return content[:start] + bytes(stop - start) + content[stop:]


DAMAGES: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "missing": lambda _content, _random: None,
    "flipped bit": flip,
    "zeros": zero_block,
    "truncated": lambda content, random: content[: random.randrange(max(1, len(content)))],
    "longer": lambda content, random: content + random.randbytes(random.randrange(1, 40)),
    "moved": lambda content, _random: content[1:] + content[:1],
    "empty": lambda _content, _random: b"",
}


@pytest.fixture
def memory(scratch: Path) -> Path:
    """A memory with several generations behind it, and a backup of an earlier one beside it."""
    folder = make_base(scratch / "mine", snapshot=False)
    back_up(folder, scratch / "old")
    seal(folder)
    append(folder, 8)
    prune(folder)
    record(folder, pairs(9), removed=(4,))
    back_up(folder, scratch / "backup")
    return folder


def replace(file: Path, content: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)


def check(folder: Path, sound: object, names: set[str], case: str) -> None:
    """Check that reading gives the sound content or an error that names a damaged file, and that verify names one."""
    try:
        found = read_all(folder)
    except MemoryFolderError as error:
        assert any(Path(name).name in str(error) or name in str(error) for name in names), f"{case}: {error}"
        assert "ibidem repair" in str(error) or "backup" in str(error), f"{case}: {error}"
    else:
        assert found == sound, f"{case}: other content was read without an error"
    try:
        reported = {damage.file for damage in verify_folder(folder)[1]}
    except DamagedMemoryError as error:
        assert any(Path(name).name in str(error) for name in names), f"{case}: {error}"
        reported = names
    assert reported & names, f"{case}: verify reports {reported}"


def cases(folder: Path, random: Random) -> Iterator[tuple[Path, str]]:
    """Yield every file with every kind of damage, in random order."""
    found = [(file, kind) for file in files(folder) for kind in DAMAGES]
    random.shuffle(found)
    yield from found


def test_damaged_file(memory: Path, budget: Budget) -> None:
    sound = read_all(memory)
    needed = needed_files(memory)
    for number, (file, kind) in zip(budget.rounds(90), endless(memory, budget.random), strict=False):
        name = file.relative_to(memory).as_posix()
        content = file.read_bytes()
        changed = DAMAGES[kind](content, budget.random)
        if changed == content:
            continue
        replace(file, changed)
        budget.count("damages")
        # Bytes after the committed end of a journal are those of a killed writer, which are no damage.
        if name in needed and not (name.startswith("journals/") and kind == "longer"):
            check(memory, sound, {name, *related(name)}, f"{number}: {name} {kind}")
        else:
            assert read_all(memory) == sound, f"{name} {kind}"
        replace(file, content)
    assert verify_folder(memory)[1] == []


def endless(folder: Path, random: Random) -> Iterator[tuple[Path, str]]:
    while True:
        yield from cases(folder, random)


def needed_files(folder: Path) -> set[str]:
    """Return the files of the current generation and the snapshots: those that a backup copies."""
    copy = folder.with_name("needed")
    back_up(folder, copy)
    found = {file.relative_to(copy).as_posix() for file in files(copy)}
    shutil.rmtree(copy)
    return found


def related(name: str) -> set[str]:
    """Return the files that a message may name instead: committed ends and journals are compared with each other."""
    if name.startswith("journals"):
        return {"journals.json", "journals/000001.log", "journals/000002.log", "journals/000003.log", "manifest.json"}
    return {"manifest.previous.json"} if name == "manifest.json" else set()


def test_swapped_files(memory: Path, budget: Budget) -> None:
    """Two files of the memory exchange their content, such as arrays of two generations."""
    sound = read_all(memory)
    needed = sorted(needed_files(memory))
    for number in budget.rounds(25):
        first, second = budget.random.sample(needed, 2) if number else ("manifest.json", "manifest.previous.json")
        a, b = (memory / first).read_bytes(), (memory / second).read_bytes()
        if a == b:
            continue
        replace(memory / first, b)
        replace(memory / second, a)
        budget.count("damages")
        check(memory, sound, {first, second, *related(first), *related(second)}, f"{first} and {second} exchanged")
        replace(memory / first, a)
        replace(memory / second, b)
    assert verify_folder(memory)[1] == []


def test_stale_files_from_a_backup(memory: Path, scratch: Path, budget: Budget) -> None:
    """Files of an older backup are copied over those of the memory: found, or the memory is as it was."""
    sound = read_all(memory)
    old = scratch / "old"
    names = [file.relative_to(old).as_posix() for file in files(old)]
    different = [name for name in names if not same(old / name, memory / name)]
    assert {"manifest.json", "journals.json"} <= set(different)
    for _ in budget.rounds(12):
        chosen = budget.random.sample(different, budget.random.randrange(1, min(4, len(different))))
        before = {name: (memory / name).read_bytes() if (memory / name).exists() else None for name in chosen}
        for name in chosen:
            (memory / name).parent.mkdir(exist_ok=True)
            replace(memory / name, (old / name).read_bytes())
        budget.count("damages")
        hit = set(chosen) | {other for name in chosen for other in related(name)} | needed_now(memory)
        try:
            found = read_all(memory)
        except MemoryFolderError as error:
            assert any(Path(name).name in str(error) for name in hit), f"{chosen}: {error}"
        else:
            assert found == sound or "manifest.json" in chosen, chosen
            if found != sound:
                # A whole older generation is there: its manifest and all of its files.
                assert found == read_all(old) or verify_folder(memory)[1], chosen
        for name, content in before.items():
            replace(memory / name, content)
    assert read_all(memory) == sound


def needed_now(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in files(folder)} | {
        f"segments/{number:06d}/segment.json" for number in range(20)
    }


def same(first: Path, second: Path) -> bool:
    return second.exists() and first.read_bytes() == second.read_bytes()


def test_repair_from_a_backup_after_any_damage(memory: Path, scratch: Path, budget: Budget) -> None:
    """Several files are damaged at once; a backup of the same state mends all that has a recorded checksum."""
    sound = read_all(memory)
    mendable = [name for name in sorted(needed_files(memory)) if not name.startswith(("manifest", "journals.json"))]
    for _ in budget.rounds(8):
        chosen = budget.random.sample(mendable, budget.random.randrange(1, 6))
        for name in chosen:
            kind = budget.random.choice(sorted(DAMAGES))
            replace(memory / name, DAMAGES[kind]((memory / name).read_bytes(), budget.random))
        budget.count("damages", len(chosen))
        done = repair_folder(memory, source=scratch / "backup")
        assert done.left == [], chosen
        assert read_all(memory) == sound, chosen


def test_every_block_of_a_large_file(scratch: Path, budget: Budget) -> None:
    import numpy as np

    from ibidem.memory import SegmentData

    folder = scratch / "large"
    count = 3 * BLOCK // 8 + 100
    with Memory.create(folder, IDENTITY).edit() as edit:
        random = np.random.default_rng(1)
        edit.append_segment(
            SegmentData(
                keys=random.standard_normal((count, 4)).astype(np.float16),
                values=random.integers(0, 100, count, dtype=np.int32),
                log_probs=-random.random(count, dtype=np.float32),
                lengths=np.array([count]),
                sources=["Quelle"],
                targets=["target"],
                origins=["file"],
                locations=[1],
            )
        )
        edit.commit()
    file = folder / "segments/000001/keys.bin"
    content = file.read_bytes()
    assert len(content) > 3 * BLOCK
    for block in range(-(-len(content) // BLOCK)):
        changed = bytearray(content)
        changed[budget.random.randrange(block * BLOCK, min(len(content), (block + 1) * BLOCK))] ^= 1
        replace(file, bytes(changed))
        budget.count("damages")
        memory = Memory.open(folder)
        with pytest.raises(DamagedMemoryError, match=rf"keys\.bin is damaged: block {block} "):
            memory.keys.read(0, memory.entries)
        ((name, reason),) = [(row.file, row.reason) for row in verify_folder(folder)[1]]
        assert name == "segments/000001/keys.bin"
        assert reason.startswith(f"block {block} ")
