"""Zip archives of which some members are replaced."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.office import package as package_module
from ibidem.text.office.package import Package

from .archives import archive, members_of

CONTENT = {"a.xml": "<a/>", "b/ä.bin": b"\0\1" * 500, "c.xml": "c" * 1000}


def test_only_changed_members_are_packed_again() -> None:
    data = archive(CONTENT, stored=("a.xml",))
    package = Package(data, "x.docx", "DOCX")
    assert package.names == list(CONTENT)
    assert b"".join(package.write({})) == data
    written = b"".join(package.write({"a.xml": b"<new/>", "c.xml": b"short"}))
    assert members_of(written) == {"a.xml": b"<new/>", "b/ä.bin": CONTENT["b/ä.bin"], "c.xml": b"short"}
    before, after = (zipfile.ZipFile(io.BytesIO(one)).getinfo("b/ä.bin") for one in (data, written))
    raw = [one[info.header_offset :][: 30 + info.compress_size] for one, info in ((data, before), (written, after))]
    assert raw[0] == raw[1]
    assert (before.date_time, before.external_attr) == (after.date_time, after.external_attr)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0/\\:"), min_size=1), st.binary(), min_size=1
    ),
    st.data(),
)
def test_any_archive(contents: dict[str, bytes], data: st.DataObject) -> None:
    package = Package(archive(dict(contents)), "x", "DOCX")
    changed = data.draw(st.dictionaries(st.sampled_from(package.names), st.binary()))
    assert members_of(b"".join(package.write(changed))) == {**contents, **changed}


def test_an_archive_written_as_a_stream_and_with_a_comment() -> None:
    """Such archives have their sizes after the members."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.xml", "<a/>")
        file.writestr("b.xml", "<b/>" * 100)
        file.comment = b"made by a stream"
    package = Package(pipe.getvalue(), "x", "DOCX")
    written = b"".join(package.write({"a.xml": b"changed"}))
    assert members_of(written) == {"a.xml": b"changed", "b.xml": b"<b/>" * 100}
    assert zipfile.ZipFile(io.BytesIO(written)).comment == b"made by a stream"


def test_bombs_are_refused_while_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_module, "MAX_PART_BYTES", 100_000)
    package = Package(archive({"a.xml": b"0" * 1_000_000, "b.xml": b"small"}), "bomb.docx", "DOCX")
    assert package.read("b.xml") == b"small"
    with pytest.raises(TextError, match=r"bomb\.docx: its text unpacks to more than 100,000 bytes"):
        package.read("a.xml")


def test_unusual_archives_are_refused() -> None:
    data = archive(CONTENT)
    encrypted = bytearray(data)
    place = encrypted.index(b"PK\1\2")
    encrypted[place + 8] |= 1
    with pytest.raises(TextError, match="encrypted"):
        Package(bytes(encrypted), "x", "DOCX").read("a.xml")
    overlapping = bytearray(data)
    second = overlapping.index(b"PK\1\2", place + 4)
    overlapping[second + 42 : second + 46] = struct.pack("<L", 0)
    for wrong in (b"", b"text", data[:-30], data[100:], b"stub" + data, data + b"tail" * 20, bytes(overlapping)):
        with pytest.raises(TextError, match="not a complete DOCX file"):
            Package(wrong, "x", "DOCX")
    with pytest.raises(TextError, match="encrypted document, or one of the old binary format"):
        Package(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "x", "DOCX")
    damaged = data.replace(b"c" * 3, b"d" * 3)
    flipped = bytearray(data)
    flipped[data.index(b"c.xml") + 8] ^= 0xFF
    for wrong in (bytes(flipped), damaged):
        if wrong != data:
            with pytest.raises(TextError, match="damaged"):
                Package(wrong, "x", "DOCX").read("c.xml")
