"""Every damaged byte is detected before it is used; damaged journals and snapshots can be dropped."""

from __future__ import annotations

import hashlib
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import Memory, ModelIdentity, verify_folder
from ibidem.memory.files import BLOCK_BYTES
from ibidem.memory.manifest import DTYPES, Counts, Layout
from ibidem.memory.segment import ArrayRecord, StoredArray

from .samples import JOURNAL, Case, append, files_of, one, record, rewrite, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 1 << 20
BIG, SMALL = "segments/000001/", "segments/000002/"
ARRAYS = [f"{folder}{name}.bin" for folder in (BIG, SMALL) for name in Layout().shapes(Counts(1, 1, 1), 1)]
HEADERS = [f"{folder}segment.json" for folder in (BIG, SMALL)]
ARTEFACT = "artefacts/index-000003.bin"
HUGE = [2**40, 2**62, 2**64, 2**200, -1, 1.0, "9", None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with a segment of several blocks, a small one, and an artefact of several blocks."""
    folder = tmp_path_factory.mktemp("damage") / "memory"
    memory = Memory.create(folder, ModelIdentity("m", "a", "b", 512, 100, "de", "en"))
    with memory.edit() as edit:
        edit.append_segment(sample(1, pairs=1000, dimension=512, width=90))
        edit.commit()
        edit.append_segment(sample(2, dimension=512))
        edit.put_artefact("index", "bin", bytes(range(256)) * 8192, {})
        edit.commit()
    assert (folder / BIG / "keys.bin").stat().st_size > 2 * BLOCK
    assert (folder / BIG / "sources.bin").stat().st_size > BLOCK
    use(folder)
    return folder


def use(folder: Path) -> None:
    """Open a memory and read all of it."""
    memory = Memory.open(folder)
    memory.bytes_by_array()
    for _ in memory.keys.blocks(1000):
        pass
    memory.values()
    memory.log_probs()
    memory.source_vectors()
    for pair in memory.sentences():
        for entry in pair.entries[:1]:
            memory.locate(entry)
    for name in memory.manifest.artefacts:
        memory.artefact(name)


@contextmanager
def replaced(file: Path, content: bytes | None) -> Iterator[None]:
    """Replace or remove a file inside a `with` block."""
    good = file.read_bytes()
    # A new file, since a file that is mapped must not shrink.
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        file.write_bytes(good)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damages(content: bytes) -> Iterator[bytes | None]:
    """Yield a missing file, four truncated ones, a longer one, and one with a flipped bit for each block."""
    yield None
    yield from (content[:length] for length in sorted({0, 1, len(content) // 2, len(content) - 1}))
    yield content + b"\0"
    for start in range(0, len(content), BLOCK):
        size = min(BLOCK, len(content) - start)
        yield flipped(content, 8 * start + (7919 * (start + 1)) % (8 * size))


@pytest.mark.parametrize("name", [*ARRAYS, *HEADERS, ARTEFACT])
def test_damage_is_detected_on_use_and_by_verify(whole: Path, name: str) -> None:
    memory = Memory.open(whole)
    for content in damages((whole / name).read_bytes()):
        with replaced(whole / name, content):
            with pytest.raises(DamagedMemoryError) as caught:
                use(whole)
            assert name.rpartition("/")[2] in str(caught.value)
            assert [damage.file for damage in memory.verify()] == [name]
    assert memory.verify() == []


@pytest.mark.parametrize("name", ["manifest.json", "manifest.previous.json"])
def test_damaged_manifests_are_detected(whole: Path, name: str) -> None:
    memory = Memory.open(whole)
    for content in damages((whole / name).read_bytes()):
        with replaced(whole / name, content):
            assert [damage.file for damage in memory.verify()] == [name]
            if name == "manifest.json":
                with pytest.raises(DamagedMemoryError, match=r"ibidem repair --accept-loss` goes back to generation"):
                    use(whole)
            else:
                use(whole)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_is_detected(whole: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in ARRAYS if name.startswith(SMALL)] + HEADERS))
    content = (whole / name).read_bytes()
    with replaced(whole / name, flipped(content, data.draw(st.integers(0, 8 * len(content) - 1)))):
        with pytest.raises(DamagedMemoryError):
            use(whole)
        assert [damage.file for damage in Memory.open(whole).verify()] == [name]


def test_only_blocks_that_are_read_are_verified(whole: Path) -> None:
    """Damage in the last block does not affect the first; every access to the last block detects it."""
    file = whole / BIG / "keys.bin"
    content = file.read_bytes()
    last = (len(content) - 1) // BLOCK
    row = len(content) // 1024 - 1
    with replaced(file, flipped(content, 8 * len(content) - 1)):
        memory = Memory.open(whole)
        memory.keys.read(0, 1)
        memory.keys.gather(np.array([1, 0]))
        for touch in (lambda: memory.keys.read(row, row + 1), lambda: memory.keys.gather(np.array([0, row]))):
            with pytest.raises(DamagedMemoryError, match=rf"keys\.bin is damaged: block {last} .*run `ibidem repair`"):
                touch()
        (damage,) = memory.verify()
        assert damage.reason.startswith(f"block {last} ")


def test_verify_reports_all_damage_and_progress(whole: Path) -> None:
    keys, values, index = whole / BIG / "keys.bin", whole / SMALL / "values.bin", whole / ARTEFACT
    steps: list[tuple[int, int]] = []
    memory = Memory.open(whole)
    assert memory.verify(lambda done, total: steps.append((done, total))) == []
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (sum(memory.bytes_by_array().values()),) * 2
    with (
        replaced(keys, bytes(len(keys.read_bytes()))),
        replaced(values, None),
        replaced(index, b"short"),
        replaced(whole / "manifest.previous.json", b"{}"),
    ):
        found = {damage.file: damage.reason for damage in memory.verify()}
    assert list(found) == ["manifest.previous.json", BIG + "keys.bin", SMALL + "values.bin", ARTEFACT]
    assert found[BIG + "keys.bin"].startswith("block 0, 1, 2")
    assert found[SMALL + "values.bin"] == "the file is missing"
    assert found[ARTEFACT] == "it has 5 bytes, and 2097152 were recorded"


def test_damaged_artefact_is_named(whole: Path) -> None:
    with replaced(whole / ARTEFACT, b"x" * 2097152):
        memory = Memory.open(whole)
        with pytest.raises(DamagedMemoryError, match=r"artefact 'index' .*sha256.*make the index again"):
            memory.artefact("index")
        memory.values()


def test_unreadable_file_is_not_reported_as_damaged(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    memory = Memory.open(whole)
    memory.bytes_by_array()
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(MemoryFolderError, match="Too many open files") as caught:
        memory.values()
    assert not isinstance(caught.value, DamagedMemoryError)


def forge(folder: Path, segment: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a segment.json and its sha256 in the manifest."""
    file = folder / "segments" / segment / "segment.json"
    document = json.loads(file.read_bytes())
    change(document)
    file.write_bytes(json.dumps(document).encode())
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite(folder, lambda manifest: manifest["segments"][int(segment) - 1].update(sha256=sha256))


@pytest.mark.parametrize("size", HUGE)
def test_inconsistent_size_in_a_record_is_refused(path: Path, size: object) -> None:
    append(path, 1)
    good = (path / "segments/000001/segment.json").read_bytes()
    lies: list[Callable[[dict[str, Any]], object]] = [
        lambda d: d["arrays"]["keys"].update(shape=[size, 4]),
        lambda d: d["arrays"]["sources"].update(shape=[size]),
        lambda d: d["arrays"]["values"].update(bytes=size),
        lambda d: d["arrays"]["values"].update(crcs=[size]),
        lambda d: d["arrays"]["offsets"].update(shape=size),
        lambda d: d.update(entries=size),
        lambda d: d.update(block_bytes=size),
    ]
    for lie in lies:
        (path / "segments/000001/segment.json").write_bytes(good)
        forge(path, "000001", lie)
        with pytest.raises(DamagedMemoryError, match=r"segment\.json"):
            use(path)
        assert [damage.file for damage in Memory.open(path).verify()] == ["segments/000001/segment.json"]


def test_consistent_wrong_sizes_differ_from_the_file_size(path: Path) -> None:
    append(path, 1, 2)
    entries = 2**34

    def lie(document: dict[str, Any]) -> None:
        document["entries"] = document["tokens"] = entries
        for name, row in (("keys", 8), ("values", 2), ("log_probs", 2)):
            array = document["arrays"][name]
            array.update(shape=[entries, *array["shape"][1:]], bytes=entries * row)
            array["crcs"] = [0] * (entries * row // BLOCK)

    forge(path, "000002", lie)
    rewrite(path, lambda manifest: manifest["segments"][1].update(entries=entries, tokens=entries))
    memory = Memory.open(path)
    for name, read in (
        ("values", memory.values),
        ("log_probs", memory.log_probs),
        ("keys", lambda: memory.keys.gather(np.array([entries - 1]))),
        ("keys", lambda: list(memory.keys.blocks())),
    ):
        with pytest.raises(DamagedMemoryError, match=rf"{name}\.bin is damaged: it has \d+ bytes, and \d+ were"):
            read()
    assert [damage.file for damage in memory.verify()] == [
        f"segments/000002/{name}.bin" for name in ("keys", "values", "log_probs", "offsets")
    ]


def forge_array(folder: Path, name: str, array: np.ndarray[Any, Any]) -> None:
    """Replace an array by one of the same size, with valid checksums."""
    content = array.tobytes()
    (folder / f"segments/000001/{name}.bin").write_bytes(content)
    digests = {"sha256": hashlib.sha256(content).hexdigest(), "crcs": [zlib.crc32(content)]}
    forge(folder, "000001", lambda document: document["arrays"][name].update(digests))


@pytest.mark.parametrize(
    ("name", "index", "value", "used"),
    [
        ("offsets", 1, 1000, True),
        ("offsets", 0, -1, True),
        ("offsets", -1, 0, True),
        ("source_offsets", 1, 2**62, True),
        ("target_offsets", 2, -(2**62), True),
        ("origins", 0, 99, True),
        ("origins", 1, -1, True),
        ("sources", 0, 0xFF, True),
        ("targets", -1, 0xE4, True),
        ("values", 0, 100, False),
        ("keys", 0, np.nan, False),
        ("log_probs", 0, np.inf, False),
    ],
)
def test_invalid_values_with_valid_checksums_are_detected(
    path: Path, name: str, index: int, value: Any, used: bool
) -> None:
    append(path, 1)
    array = np.fromfile(path / f"segments/000001/{name}.bin", DTYPES[name])
    array[index] = value
    forge_array(path, name, array)
    assert [damage.file for damage in Memory.open(path).verify()] == [f"segments/000001/{name}.bin"]
    if used:
        with pytest.raises(DamagedMemoryError, match=name):
            use(path)


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_damage_of_files_that_only_a_snapshot_needs_is_detected(path: Path, kind: str) -> None:
    memory = append(path, 1)
    record(path, one(7))
    with memory.edit() as edit:
        edit.commit()
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()
    record(path, one(8))
    Memory.open(path).sealed()
    record(path, one(9)).sealed()
    (snapshot,) = (path / "snapshots").iterdir()
    file = snapshot if kind == "snapshot" else path / "journals/000002.log"
    name = file.relative_to(path).as_posix()
    good = file.read_bytes()
    for content in (None, b"", good[:-1], good[:150] + bytes([good[150] ^ 1]) + good[151:]):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        before = files_of(path)
        assert [damage.file for damage in verify_folder(path)[1]] == [name]
        if kind == "snapshot":
            with pytest.raises(DamagedMemoryError, match=r"unpruned-\d+\.json is damaged"):
                Memory.open(path)
        with pytest.raises(DamagedMemoryError), Memory.open(path).edit() as edit:
            edit.restore_snapshot("unpruned")
        assert files_of(path) == before
    file.write_bytes(good)
    assert verify_folder(path)[1] == []


def test_verify_reports_a_journal_that_prevents_opening(case: Case) -> None:
    (case.path / JOURNAL).unlink()
    result = CliRunner().invoke(app, ["verify", "-m", str(case.path)])
    assert result.exit_code == 1
    assert f"damaged: {JOURNAL}: the file is missing, and 3 records of" in result.output


def test_verify_while_another_process_commits(path: Path) -> None:
    append(path, 1, 2)
    record(path, one(7))
    commits = []

    def commit(done: int, total: int) -> None:
        if not commits:
            commits.append((done, total))
            for number in (8, 9):
                with record(path, one(number), removed=(number - 8,)).edit() as edit:
                    edit.commit()

    assert verify_folder(path, commit)[1] == []
    assert commits


def test_damage_of_the_last_byte_of_a_row_is_found(tmp_path: Path) -> None:
    """A row that ends with the first byte of a block is verified with that block."""
    rows = np.zeros((2 * BLOCK_BYTES // 3 + 1, 3), np.uint8)
    data = rows.tobytes()
    assert len(data) % BLOCK_BYTES == 1
    crcs = [zlib.crc32(data[start : start + BLOCK_BYTES]) for start in range(0, len(data), BLOCK_BYTES)]
    record = ArrayRecord("uint8", rows.shape, len(data), hashlib.sha256(data).hexdigest(), crcs)
    (tmp_path / "array").write_bytes(data[:-1] + b"x")
    last = np.array([len(rows) - 1])
    with pytest.raises(DamagedMemoryError):
        StoredArray(tmp_path / "array", record).gather(last)
    assert (StoredArray(tmp_path / "array", record).gather(last - 1) == 0).all()
