"""Decompression, decoding and failures of input files."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError, UsageError
from ibidem.text import Corpus
from ibidem.text.stream import MAX_TEXT, Stream

from .conftest import Write, sides

LINES = "".join(f"Quelle {number}\tsource {number}\n" for number in range(20_000))


def test_lines_are_split_at_newlines_only(write: Write) -> None:
    path = write("odd.tsv", "\ufeffa\u2028b\x0bc\x0cd\x1ee\x85f\tx\x00y\r\nq\rr\tz")
    assert sides(Corpus([path])) == [("a\u2028b\x0bc\x0cd\x1ee\x85f", "x\x00y"), ("q\rr", "z")]


def test_only_the_first_byte_order_mark_is_removed(write: Write) -> None:
    assert sides(Corpus([write("a.tsv", "\ufeff\ufeffa\tb\n\ufeffc\td\n")])) == [
        ("\ufeffa", "b"),
        ("\ufeffc", "d"),
    ]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_an_invalid_byte_is_named_with_its_line_and_a_remedy(write: Write, ending: str) -> None:
    path = write(f"latin.tsv{ending}", "a\tb\nTür\tdoor\n".encode("latin1"))
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line 2: byte 0xFC is not UTF-8.")
    assert "--encoding cp1252" in str(error.value)
    assert "iconv -f ENCODING -t utf-8" in str(error.value)
    assert [pair.source for pair in Corpus([path], encoding="Windows-1252")] == ["a", "Tür"]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_utf_16_is_recognised(write: Write, ending: str, encoding: str) -> None:
    lines = "Tür\tdoor\r\nDas Haus ist groß.\tThe house is big.\n"
    corpus = Corpus([write(f"a.tsv{ending}", lines.encode(encoding))])
    assert [(pair.source, pair.target, pair.location) for pair in corpus] == [
        ("Tür", "door", 1),
        ("Das Haus ist groß.", "The house is big.", 2),
    ]


@given(st.lists(st.text(st.characters(codec="utf-16", exclude_categories=["C"]), min_size=1), min_size=1))
def test_a_stated_encoding_gives_the_same_lines(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("encodings")
    found = []
    for encoding in ("utf-8", "utf-16"):
        path = folder / f"{encoding}.tsv"
        path.write_bytes("".join(f"{text}\tb\n" for text in texts).encode(encoding))
        found.append([pair.source for pair in Corpus([path], encoding=encoding)])
    assert found[0] == found[1]


def test_a_wrong_encoding_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match="'klingon' is not an encoding of text"):
        Corpus([write("a.tsv", "a\tb\n")], encoding="klingon")
    with pytest.raises(TextError, match=r"b.tsv: it is not valid ascii \(ordinal not in range"):
        list(Corpus([write("b.tsv", "ä\tb\n")], encoding="ascii"))


def test_half_a_surrogate_pair_is_not_utf8(write: Write) -> None:
    with pytest.raises(TextError, match="line 1: byte 0xED is not UTF-8"):
        list(Corpus([write("a.tsv", b"\xed\xa0\x80\tb\n")]))


@pytest.mark.parametrize(("ending", "tool"), [(".gz", "gzip -t"), (".xz", "xz -t")])
@pytest.mark.parametrize("damage", ["truncated", "changed", "not compressed", "empty"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, ending: str, tool: str, damage: str) -> None:
    compress = gzip.compress if ending == ".gz" else lzma.compress
    data = bytearray(compress(LINES.encode()))
    if damage == "truncated":
        del data[len(data) // 2 :]
    elif damage == "changed":
        # The checksum at the end: a change before it may show up as bad text first.
        data[-8:-4] = b"\xff\x00\xff\x00"
    elif damage == "not compressed":
        data = bytearray(LINES.encode())
    else:
        data.clear()
    path = tmp_path / f"a.tsv{ending}"
    path.write_bytes(data)
    with pytest.raises(TextError, match="truncated or damaged") as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}: ")
    assert tool in str(error.value)


def test_a_line_without_end_is_refused(write: Write) -> None:
    path = write("endless.tsv.xz", b"a\tb\n" + bytes(MAX_TEXT + 1))
    with pytest.raises(TextError, match=rf"endless.tsv.xz, line 2: longer than {MAX_TEXT:,} bytes. Check"):
        list(Corpus([path]))


def test_a_missing_file_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "missing.tsv"
    with pytest.raises(TextError, match=r"missing.tsv: cannot be opened \(No such file.* Check the path"):
        Corpus([path])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder.tsv"
    folder.mkdir()
    with pytest.raises(TextError, match=r"folder.tsv: is a folder. Give the path of a file"):
        Corpus([folder])


def test_a_deleted_file_is_named(write: Write) -> None:
    path = write("a.tsv", "a\tb\n")
    corpus = Corpus([path])
    Path(path).unlink()
    with pytest.raises(TextError, match=r"a.tsv: cannot be opened"):
        list(corpus)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(write: Write) -> None:
    path = write("secret.tsv", "a\tb\n")
    Path(path).chmod(0)
    with pytest.raises(TextError, match=r"secret.tsv: cannot be opened \(Permission denied\)"):
        list(Corpus([path]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_named_pipe_can_be_read_and_has_no_size(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"a\tb\n",))
    writer.start()
    corpus = Corpus([path])
    assert corpus.fraction() is None
    assert sides(corpus) == [("a", "b")]
    writer.join()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files")
@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_the_file_is_closed_when_a_reader_stops_early(write: Write, ending: str) -> None:
    path = write(f"a.tsv{ending}", LINES)

    def is_open() -> bool:
        return any(link.is_symlink() and link.readlink() == Path(path) for link in Path("/proc/self/fd").iterdir())

    corpus = Corpus([path])
    pairs = iter(corpus)
    next(pairs)
    assert is_open()
    before = corpus.fraction()
    pairs.close()  # type: ignore[attr-defined]
    assert not is_open()
    assert corpus.fraction() == before


def test_reading_continues_where_it_stopped(write: Write) -> None:
    with Stream(write("a.tsv", "1\n2\n3\n")) as stream:
        assert next(stream.lines()) == (1, "1")
        assert list(stream.lines()) == [(2, "2"), (3, "3")]
        assert stream.line == 3
