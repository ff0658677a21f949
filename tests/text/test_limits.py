"""Small files that would fill the memory or run for minutes are refused, or read in bounded memory."""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess
import sys
import zlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.markup import set_attribute
from ibidem.text.stream import BLOCK_BYTES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_TEXT, ReadLimits, Stream

from .conftest import Write, sides

if TYPE_CHECKING:
    from collections.abc import Callable

TMX = b'<tmx version="1.4"><header/><body>'
XLIFF = b'<xliff version="1.2"><file source-language="de" target-language="en"><body>'
PEAK = 48 << 20


def pack(path: Path, *parts: tuple[bytes, int]) -> str:
    """Write repeated bytes, compressed by the ending, without storing all of them."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31) if path.suffix == ".gz" else lzma.LZMACompressor(preset=0)
    with path.open("wb") as file:
        for part, times in parts:
            at_once = max(1, 2**20 // len(part))
            for done in range(0, times, at_once):
                file.write(packer.compress(part * min(at_once, times - done)))
        file.write(packer.flush())
    return str(path)


def make_mo(strings: list[tuple[int, int]], body: bytes, magic: int = 0x950412DE) -> bytes:
    """Return a catalogue whose originals and translations have these lengths and offsets into the body."""
    start = 28 + 8 * len(strings)
    table = b"".join(struct.pack("<2I", length, start + offset) for length, offset in strings)
    return struct.pack("<7I", magic, 0, len(strings), 28, 28, 0, 0) + table + body


def nested_tmx(folder: Path) -> str:
    return pack(folder / "a.tmx.gz", (TMX, 1), (b"<a>", 16_700_000))


def nested_xliff(folder: Path) -> str:
    return pack(folder / "a.xlf.gz", (XLIFF, 1), (b"<a>", 16_700_000))


def nested_in_unit(folder: Path) -> str:
    return pack(folder / "a.xlf.xz", (XLIFF + b"<trans-unit>", 1), (b"<g>", 5_000_000))


def comments(folder: Path) -> str:
    return pack(folder / "de.po.gz", (b"# " + b"x" * (MAX_TEXT - 4) + b"\n", 200))


def flags(folder: Path) -> str:
    return pack(folder / "de.po.gz", (b"#, a\n", 500_000))


def one_large_unit(folder: Path) -> str:
    return pack(folder / "a.xlf.gz", (XLIFF + b"<trans-unit>", 1), (b"<x/>", 1_000_000))


def many_names(folder: Path) -> str:
    path = folder / "a.tmx"
    path.write_bytes(TMX + b"".join(b"<a%d/>" % number for number in range(400_000)))
    return str(path)


def long_namespace(folder: Path) -> str:
    path = folder / "a.xlf"
    names = b" ".join(b'p:a%d="1"' % number for number in range(2_000))
    path.write_bytes(b'<xliff version="1.2" xmlns:p="' + b"u" * 200_000 + b'" ' + names + b"/>")
    return str(path)


def default_attribute(folder: Path) -> str:
    path = folder / "a.xlf"
    doctype = b'<!DOCTYPE xliff [<!ATTLIST g b CDATA "' + b"x" * 50_000 + b'">]>'
    path.write_bytes(doctype + XLIFF + b"<g/>" * 10_000)
    return str(path)


def large_mo(folder: Path) -> str:
    return pack(folder / "de.mo.gz", (make_mo([(0, 0)], b""), 1), (b"\0", 120 << 20))


REFUSED: dict[Callable[[Path], str], str] = {
    nested_tmx: f"line 1: more than {MAX_DEPTH} elements inside one another",
    nested_xliff: f"line 1: more than {MAX_DEPTH} elements inside one another",
    nested_in_unit: f"line 1: more than {MAX_DEPTH} elements inside one another",
    comments: "line 5: more than 4,194,304 characters of comments",
    flags: "line 1001: more than 1,000 lines of flags",
    one_large_unit: "line 1: <trans-unit> has more than 100,000 tags",
    many_names: "line 1: too many different names",
    long_namespace: f"line 1: an element with more than {MAX_ATTRIBUTES} attributes",
    default_attribute: "line 1: too many default values",
    large_mo: "larger than 16,777,216 bytes",
}

READ = """
import sys
from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.stream import ReadLimits

def peak():
    # ru_maxrss would start with the memory of the parent process.
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

before = peak()
try:
    sum(1 for _ in Corpus([sys.argv[1]], limits=ReadLimits(whole_bytes=2**24)))
    message = "read"
except TextError as error:
    message = str(error)
print(peak() - before, message)
"""


def read_apart(path: str) -> tuple[int, str]:
    """Read a file in a process of its own: how many bytes its peak memory grew, and the error, if any."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak memory of a process is not known")
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60, check=True)
    grown, _, message = done.stdout.partition(" ")
    return int(grown), message


@pytest.mark.parametrize(("make", "what"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_hostile_files_are_refused_in_little_memory(tmp_path: Path, make: Callable[[Path], str], what: str) -> None:
    path = make(tmp_path)
    grown, message = read_apart(path)
    assert message.startswith(path)
    assert what in message
    assert grown < PEAK


def test_origins_that_are_long_are_not_kept(tmp_path: Path) -> None:
    lines = (f'{{"de": "a", "en": "b", "origin": "{n}{"x" * 900_000}", "location": 1}}\n' for n in range(120))
    path = tmp_path / "a.jsonl"
    path.write_text("".join(lines))
    grown, message = read_apart(str(path))
    assert message == "read\n"
    assert grown < PEAK
    assert next(iter(Corpus([path]))).origin == str(path)


def test_xliff_is_read_unit_by_unit(tmp_path: Path) -> None:
    unit = b"<trans-unit>\n<source>a<x/></source>\n<target>b</target></trans-unit>"
    path = pack(tmp_path / "a.xlf.gz", (XLIFF, 1), (unit, 8_000), (b"</body></file></xliff>", 1))
    grown, message = read_apart(path)
    assert message == "read\n"
    assert grown < 6 << 20


LIMITS = ReadLimits(dropped_in_a_row=1_000)
DROPPED = {
    "a.tsv": (b"", b"\n", b""),
    "a.jsonl": (b"", b"\n", b""),
    "a.tmx": (TMX, b"<tu/>", b"</body></tmx>"),
    "a.xlf": (XLIFF, b"<trans-unit><source>a</source></trans-unit>", b"</body></file></xliff>"),
    "a.de.po": (b"", b'msgid "a"\nmsgstr ""\n', b""),
}


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("name", DROPPED)
def test_units_that_give_no_pair_are_limited(write: Write, name: str, ending: str) -> None:
    head, unit, tail = DROPPED[name]
    corpus = Corpus([write(name + ending, head + 1_000 * unit + tail)], limits=LIMITS)
    assert list(corpus) == []
    assert corpus.counts.read == 1_000
    path = write(name + ending, head + 1_001 * unit + tail)
    with pytest.raises(TextError, match=r"1,000 units in a row give no pair \(read 1,001 .* Check that") as error:
        list(Corpus([path], limits=LIMITS))
    assert str(error.value).startswith(path)


def test_empty_lines_of_aligned_files_are_limited(write: Write) -> None:
    paths = [write(name, "\n" * 1_001) for name in ("a.gz", "b")]
    with pytest.raises(TextError, match=r"a.gz, line 1,001: 1,000 units in a row give no pair"):
        list(Corpus(paths, limits=LIMITS))


def test_pairs_between_start_the_count_again(write: Write) -> None:
    path = write("a.tsv", ("\n" * 1_000 + "a\tb\n") * 3)
    assert len(sides(Corpus([path], limits=LIMITS))) == 3


PAIR = {
    "a.tsv": (b"", b"aa\tb\n", b""),
    "a.jsonl": (b"", b'{"de": "aa", "en": "b"}\n', b""),
    "a.tmx": (
        TMX,
        b'<tu><tuv lang="de"><seg>aa</seg></tuv><tuv lang="en"><seg>b</seg></tuv></tu>',
        b"</body></tmx>",
    ),
    "a.xlf": (XLIFF, b"<trans-unit><source>aa</source><target>b</target></trans-unit>", b"</body></file></xliff>"),
    "a.de.po": (b"", b'msgid "b"\nmsgstr "aa"\n', b""),
}


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize("name", PAIR)
def test_a_high_compression_ratio_is_refused(write: Write, name: str, ending: str) -> None:
    head, unit, tail = PAIR[name]
    content = head + unit * (2**17 // len(unit)) + tail
    path = write(name + ending, content)
    assert sides(Corpus([path]))[0] == ("aa", "b")
    with pytest.raises(TextError, match=r"unpacks to more than 50 times its size, .* unpack it and give") as error:
        list(Corpus([path], limits=ReadLimits(ratio=50, ratio_bytes=2**16)))
    assert str(error.value).startswith(path)
    with pytest.raises(TextError, match=r"unpacks to more than 65,536 bytes. Split it"):
        list(Corpus([path], limits=ReadLimits(expanded_bytes=2**16)))
    plain = write(name, content)
    assert list(Corpus([plain], limits=ReadLimits(ratio=1, ratio_bytes=1, expanded_bytes=1)))


def test_text_that_compresses_well_is_read(tmp_path: Path) -> None:
    """The defaults allow any file up to 256 MiB, and beyond that 300 times its size."""
    limits = ReadLimits()
    limits.check_expansion("a", 1, 2**28)
    limits.check_expansion("a", 40_000_000, 50 * 40_000_000)
    path = pack(tmp_path / "a.tsv.xz", (b"ein Satz\ta sentence\n", 100_000))
    assert sum(1 for _ in Corpus([path])) == 100_000


def test_entries_of_mo_that_share_a_string_are_refused(write: Write) -> None:
    long = 100_000
    shared = make_mo([(long, 0)] * 2_000, b"a" * long)
    path = write("de.mo", shared)
    with pytest.raises(TextError, match=r"de.mo: .* the strings up to entry 3 add up to 4 times the size of the file"):
        list(Corpus([path]))
    few = make_mo([(1, 0)] * 20, b"a")
    assert list(Corpus([write("de.mo", few)])) == []


def test_mo_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    path = pack(tmp_path / "de.mo.gz", (make_mo([], b"", magic=1), 1), (b"\0", 2**20))
    calls = count()
    with pytest.raises(TextError, match="its first bytes are not those of an MO file"):
        list(Corpus([path], check=lambda: next(calls) and None))
    assert next(calls) < 5


def test_long_white_space_is_parsed_in_linear_time(write: Write) -> None:
    with pytest.raises(TextError, match="line 1: cannot be parsed"):
        list(Corpus([write("de.po", "msgid" + " " * 1_000_000 + "x\n")]))
    tag = "<target" + " " * 1_000_000 + ">"
    assert set_attribute(tag, "a", "1") == '<target a="1"' + " " * 1_000_000 + ">"


def test_empty_strings_of_an_entry_are_counted(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.text.po.MAX_TEXT", 1_000)
    path = write("de.po.gz", 'msgid "a"\n' + '""\n' * 1_000)
    with pytest.raises(TextError, match=r"line 1001: an entry longer than 1,000 bytes"):
        list(Corpus([path]))


def test_fuzzy_is_found_after_many_comments(write: Write) -> None:
    path = write("de.po", "# note\n" * 1_500 + '#, fuzzy\nmsgid "a"\nmsgstr "b"\n')
    corpus = Corpus([path])
    assert list(corpus) == []
    assert corpus.counts.dropped == {"fuzzy": 1}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"<!DOCTYPE tmx [<!ELEMENT a " + b"(" * 200_000, "line 1: a document type longer than 65,536 bytes"),
        (b"<tmx><!--" + b"x" * 2_000_000, f"line 1: a tag longer than {MAX_TEXT:,} bytes"),
        (b"<tmx\n" + b" ".join(b'a%d=""' % n for n in range(257)) + b"/>", "line 1: an element with more than 256 att"),
        (b"<tmx>" + b"<a>\n" * 256, "line 256: more than 256 elements inside one another"),
    ],
)
@pytest.mark.parametrize("ending", ["tmx", "xlf"])
def test_parts_of_xml_are_limited(write: Write, content: bytes, what: str, ending: str) -> None:
    path = write(f"a.{ending}", content.replace(b"<tmx", b'<xliff version="1.2"') if ending == "xlf" else content)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, {what}")


def test_namespaces_are_limited(write: Write) -> None:
    deep = "".join(f'<g xmlns:n{n}="u{n}">' for n in range(250))
    few = f'<xliff version="1.2">{deep}{"</g>" * 250}</xliff>'
    assert sides(Corpus([write("a.xlf", few)])) == []
    many = few.replace('xmlns:n9="u9"', " ".join(f'xmlns:m{n}="u"' for n in range(200)))
    with pytest.raises(TextError, match="line 1: more than 256 namespaces"):
        list(Corpus([write("a.xlf", many)]))
    with pytest.raises(TextError, match="line 1: a namespace longer than 1,024 characters"):
        list(Corpus([write("a.xlf", f'<xliff version="1.2" xmlns="{"u" * 1025}"/>')]))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[" * 900_000, "not valid JSON"),
        ('{"de": ' * 100_000, "not valid JSON"),
        ('{"de": ' + "1" * 900_000 + ', "en": "b"}', "not valid JSON"),
        ("x" * (MAX_TEXT + 1), f"longer than {MAX_TEXT:,} bytes"),
        ("{" + ",".join(f'"{n}{"x" * 5_000}": 1' for n in range(150)) + "}", "no 'de' side"),
        ("{" + ",".join(f'"{n}": 1' for n in range(80_000)) + ', "de": 1, "en": ""}', "the value of 'de' is int"),
    ],
    ids=["arrays", "objects", "number", "long", "keys", "value"],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_json_lines_are_limited(write: Write, line: str, what: str, ending: str) -> None:
    path = write(f"a.jsonl{ending}", '{"de": "a", "en": "b"}\n' + line + "\n")
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line 2: {what}")
    assert len(str(error.value)) < len(path) + 2_000


def test_headers_are_cut_in_messages(write: Write) -> None:
    for header in ("Language: ", "Content-Type: text/plain; charset="):
        path = write("x.po", f'msgid ""\nmsgstr "{header}{"x" * 100_000}\\n"\nmsgid "a"\nmsgstr "b"\n')
        with pytest.raises(TextError) as error:
            list(Corpus([path]))
        assert len(str(error.value)) < len(path) + 500


def test_segments_beyond_the_limit_are_dropped(write: Write) -> None:
    corpus = Corpus([write("a.tsv", f"a\t{'b' * 11}\n{'a' * 10}\tb\n")], limits=ReadLimits(segment=10))
    assert sides(corpus) == [("a" * 10, "b")]
    assert corpus.counts.dropped == {"longer than 10 characters": 1}


def test_the_memory_of_decompression_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    data = bytearray(lzma.compress(b"a\tb\n", format=lzma.FORMAT_ALONE))
    data[1:5] = struct.pack("<I", 2**30)  # the size of the dictionary
    path.write_bytes(data)
    with pytest.raises(TextError, match=r"a.tsv.xz: unpacking takes more than 134,217,728 bytes of memory. Compress"):
        list(Corpus([path], limits=ReadLimits(unpack_bytes=2**27)))
    path.write_bytes(lzma.compress(b"a\tb\n") + data)
    with pytest.raises(TextError, match="unpacking takes more than"):
        list(Corpus([path], limits=ReadLimits(unpack_bytes=2**27)))


def test_all_streams_of_an_xz_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    empty = lzma.compress(b"")
    path.write_bytes(empty * 3 + lzma.compress(b"a\tb\nc\t") + empty + lzma.compress(b"d\n") + b"no stream")
    assert sides(Corpus([path])) == [("a", "b"), ("c", "d")]


class StopError(Exception):
    """Raised by a check."""


QUIET = {
    "a.tsv": (b"", b"\n", 2_000_000),
    "a.tsv.gz": (b"", b"\n", 2_000_000),
    "a.jsonl.xz": (b"", b"\n", 2_000_000),
    "a.tmx.gz": (TMX, b"<tu/>", 400_000),
    "a.tmx": (TMX, b"<!---->", 300_000),
    "a.xlf.gz": (XLIFF, b"<g/>", 500_000),
    "de.po.gz": (b"", b"# x\n", 500_000),
    "de.po.xz": (b"", b"\n", 2_000_000),
}


@pytest.mark.parametrize("name", QUIET)
def test_a_check_stops_readers_that_find_nothing(tmp_path: Path, name: str) -> None:
    head, unit, times = QUIET[name]
    path = tmp_path / name
    if path.suffix in (".gz", ".xz"):
        pack(path, (head, 1), (unit, times)) if head else pack(path, (unit, times))
    else:
        path.write_bytes(head + unit * times)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise StopError

    corpus = Corpus([path], check=check)
    with pytest.raises(StopError):
        list(corpus)
    assert corpus.counts.read <= 8 * BLOCK_BYTES
    with Stream(str(path)) as stream:
        total = sum(map(len, iter(lambda: stream.read(2**20), b"")))
    assert total > 16 * BLOCK_BYTES  # it stopped long before the end


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)], ids=["gz", "xz"])
def test_a_check_stops_decompression_that_gives_nothing(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    empty = compress(b"")
    path = tmp_path / f"a.tsv{ending}"
    path.write_bytes(empty * (10 * BLOCK_BYTES // len(empty)))
    calls = count()
    assert list(Corpus([path], check=lambda: next(calls) and None)) == []
    assert next(calls) > 10


def test_a_check_is_called_for_each_entry_of_mo(write: Write) -> None:
    calls = count()
    data = make_mo([(0, 0)] * 5_000, b"\0")
    assert list(Corpus([write("de.mo", data)], check=lambda: next(calls) and None)) == []
    assert next(calls) > 5_000
