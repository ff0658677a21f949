"""Damaged index files are rejected, and a loaded file is read-only."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import MemoryFolderError
from ibidem.retrieve.ivf.index import load_native

from .samples import build

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.retrieve import ArrayKeys

pytestmark = pytest.mark.usefixtures("native_build")

# The array of each kind of damage.
WHERE = {name: name for name in ("region", "list offsets", "guide offsets", "guide", "slots", "entries")}

WHERE |= {"no slot": "slots", "an entry twice": "entries"}


def damage(whole: bytes, how: str) -> bytes:
    """Damage a file so that the native library would read outside it."""
    header = struct.Struct("<16s7qd")
    magic, *numbers, scale = header.unpack(whole[: header.size])
    changed = bytearray(whole)
    if how == "short":
        return whole[:-1]
    if how == "no header":
        return whole[:50]
    if how == "magic":
        changed[:3] = b"abc"
    elif how == "older":
        changed[:16] = b"ibidem-native-4\n"
    elif how == "blocks":
        numbers[5] += 1
    elif how == "block_means":
        numbers[6] += 1
    elif how == "huge":
        numbers[0] = 2**62
    elif how == "negative":
        numbers[4] = -1
    elif how == "dimension":
        numbers[1] = 30
    elif how in WHERE:
        names = [
            "mean",
            "region",
            "groups",
            "lists",
            "list offsets",
            "guide offsets",
            "guide",
            "blocks",
            "slots",
            "entries",
        ]
        regions, blocks, block_means = numbers[4:]
        sizes = [4 * 32, -(-regions // 16) * 16 * (4 + 32), regions * 16 * (4 + 16), 16 * regions * 16 * (4 + 16)]
        sizes += [4 * (256 * regions + 1)] * 2 + [block_means * 16 * (4 + 8), blocks * 16 * (4 + 8), blocks * 16 * 4]
        begin = 4096 + sum(-(-size // 4096) * 4096 for size in sizes[: names.index(WHERE[how])])
        begin += 0 if how == "guide" else 8
        other = struct.unpack("<i", changed[begin + 4 : begin + 8])[0]
        wrong = {"guide": 0x7C007C00, "no slot": -1, "an entry twice": other}.get(how, 10**9)
        changed[begin : begin + 4] = struct.pack("<i", wrong)
    if how in ("blocks", "block_means", "huge", "negative", "dimension"):
        changed[: header.size] = header.pack(magic, *numbers, scale)
    assert bytes(changed) != whole
    return bytes(changed)


@pytest.mark.parametrize(
    "how",
    [
        "short",
        "no header",
        "magic",
        "older",
        "blocks",
        "block_means",
        "huge",
        "negative",
        "dimension",
        *WHERE,
    ],
)
def test_a_damaged_file_is_rejected(clustered: ArrayKeys, tmp_path: Path, how: str) -> None:
    path = tmp_path / "index.native"
    info = build(clustered, "native;lists=32").save(path)
    path.write_bytes(damage(path.read_bytes(), how))
    with pytest.raises(MemoryFolderError, match=r"cannot be read.*ibidem index"):
        load_native(path, info, clustered)


def test_a_loaded_file_is_read_only(clustered: ArrayKeys, tmp_path: Path) -> None:
    path = tmp_path / "index.native"
    loaded = load_native(path, build(clustered, "native;lists=8").save(path), clustered)
    for array in (loaded.file.bytes, loaded.file.lists.keys, loaded.file.centroids.coding.mean):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
