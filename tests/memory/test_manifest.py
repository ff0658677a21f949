"""An invalid manifest is refused; the message names the file and the field."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import Manifest, Memory
from ibidem.memory.generations import decode_manifest, encode_manifest

from .samples import (
    IDENTITY,
    append,
    rewrite,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_round_trip(path: Path) -> None:
    manifest = append(path, 1, 2).manifest
    assert decode_manifest(encode_manifest(manifest), path) == manifest
    assert json.loads((path / "manifest.json").read_text("utf-8"))["format"] == 5


FIELDS = [
    [field.name for field in dataclasses.fields(Manifest)],
    [f"identity.{name}" for name in vars(IDENTITY)],
    [f"segments.0.{name}" for name in ("name", "entries", "pairs", "sha256")],
    [f"artefacts.index.{name}" for name in ("file", "bytes", "sha256", "info")],
]


RIGHT_FOR: dict[str, tuple[object, ...]] = {
    "complete": (True,),
    "ibidem_version": ("../x",),
    "identity.name": ("../x",),
    "identity.model_fingerprint": ("../x",),
    "identity.tokenizer_fingerprint": ("../x",),
    "identity.source_language": ("../x", None),
    "identity.target_language": ("../x", None),
    "identity.source_prefix": ("../x",),
}


@pytest.mark.parametrize("field", [name for group in FIELDS for name in group])
def test_missing_and_mistyped_fields_are_named(path: Path, field: str) -> None:
    append(path, 1)
    good = (path / "manifest.json").read_bytes()
    *parents, name = field.split(".")

    def holder(document: Any) -> Any:
        for parent in parents:
            document = document[int(parent) if parent.isdigit() else parent]
        return document

    for value in ("missing", -(2**70), 2**70, 1.5, True, None, [[]], "../x"):
        (path / "manifest.json").write_bytes(good)
        if value in RIGHT_FOR.get(field, ()):
            continue
        if value == "missing":
            rewrite(path, lambda document: holder(document).pop(name))
        else:
            rewrite(path, lambda document, value=value: holder(document).update({name: value}))
        with pytest.raises(DamagedMemoryError, match=rf"manifest\.json.*{name}"):
            Memory.open(path)


def test_invalid_values_are_named(path: Path) -> None:
    append(path, 1)
    good = (path / "manifest.json").read_bytes()
    lies: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("segments", lambda d: d["segments"].append(d["segments"][0])),
        ("origins", lambda d: d["origins"].append(d["origins"][0])),
        ("origins", lambda d: d["origins"].append(1)),
        ("artefacts.index.file", lambda d: d["artefacts"]["index"].update(file="../manifest.json")),
        ("segments[0].name", lambda d: d["segments"][0].update(name="../artefacts")),
        ("stages.tune", lambda d: d["stages"].update(tune=3)),
        ("created", lambda d: d.update(created="yesterday")),
        ("segments[0]", lambda d: d["segments"].__setitem__(0, [])),
    ]
    for field, lie in lies:
        (path / "manifest.json").write_bytes(good)
        rewrite(path, lie)
        with pytest.raises(DamagedMemoryError) as caught:
            Memory.open(path)
        assert field in str(caught.value)


def test_newer_format_is_refused(path: Path) -> None:
    append(path, 1)
    rewrite(path, lambda document: document.update(format=6))
    with pytest.raises(MemoryFolderError, match=r"newer ibidem \(format 6; this one reads 5\): upgrade") as caught:
        Memory.open(path)
    assert not isinstance(caught.value, DamagedMemoryError)


def test_older_format_is_refused(path: Path) -> None:
    append(path, 1)
    rewrite(path, lambda document: document.update(format=4))
    with pytest.raises(MemoryFolderError, match=r"older ibidem \(format 4; this one reads 5\): learn the memory again"):
        Memory.open(path)


def test_newer_format_with_wrong_checksum(path: Path) -> None:
    text = (path / "manifest.json").read_text("utf-8")
    (path / "manifest.json").write_text(text.replace('"format": 5', '"format": 6'), "utf-8")
    with pytest.raises(DamagedMemoryError, match=r"checksum does not match, or .* newer ibidem"):
        Memory.open(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a": NaN}', b"1" * 9999])
def test_content_that_is_no_manifest(path: Path, content: bytes) -> None:
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedMemoryError, match=r"manifest\.json"):
        Memory.open(path)


def test_error_of_a_damaged_manifest_names_the_remedy(path: Path) -> None:
    append(path, 1)
    way = r"`ibidem repair --accept-loss` goes back to generation 1"
    (path / "manifest.json").write_bytes(b"{")
    with pytest.raises(DamagedMemoryError, match=way):
        Memory.open(path)
    (path / "manifest.json").unlink()
    assert Memory.exists(path)
    with pytest.raises(DamagedMemoryError, match=f"missing; {way}"):
        Memory.open(path)
    (path / "manifest.previous.json").write_bytes(b"{")
    with pytest.raises(
        DamagedMemoryError,
        match="missing; run `ibidem repair`",
    ):
        Memory.open(path)
    shutil.rmtree(path / "segments")
    (path / "manifest.previous.json").unlink()
    with pytest.raises(MemoryFolderError, match="no memory at"):
        Memory.open(path)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed") / "m"
    Memory.create(folder, IDENTITY)
    append(folder, 1)
    return folder


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_changed_bit_of_a_manifest_is_detected(sealed: Path, data: st.DataObject) -> None:
    content = bytearray((sealed / "manifest.json").read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedMemoryError):
        decode_manifest(bytes(content), sealed / "manifest.json")


def test_exchanged_documents_are_damage_and_not_another_version(path: Path) -> None:
    append(path, 1)
    manifest, ends = (path / "manifest.json").read_bytes(), (path / "journals.json").read_bytes()
    (path / "journals.json").write_bytes(manifest)
    with pytest.raises(DamagedMemoryError, match=r"journals\.json is damaged: it holds no committed ends"):
        Memory.open(path)
    (path / "journals.json").write_bytes(ends)
    (path / "manifest.json").write_bytes(ends)
    with pytest.raises(DamagedMemoryError, match=r"manifest\.json is damaged: it is not a manifest"):
        Memory.open(path)
