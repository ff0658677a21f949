"""The readers that are fuzzed, and the oracles: bounded time and memory, no error but those of the family, round trips.

`TARGETS` has a target for each way in which the program reads bytes of strangers. Those of files come from the table of
formats, so that a new format is fuzzed without a change here. A target reads an input and, if it is checked in full,
writes what was read and reads that again, which takes many times as long.
"""

from __future__ import annotations

import asyncio
import io
import json
import resource
import sys
import tempfile
import time
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ibidem.errors import GlossaryError, TextError
from ibidem.glossary import Glossary
from ibidem.glossary.formats import FORMATS as TERM_FORMATS
from ibidem.glossary.formats import parse_terms, write_terms
from ibidem.serve.http_error import HttpError
from ibidem.serve.jobs import Upload
from ibidem.serve.limits import Limits
from ibidem.serve.markup import count_blocks, translate_markup
from ibidem.serve.request import read_fields, read_upload
from ibidem.text import Corpus, ReadLimits, fill, find_sentences, write_pairs
from ibidem.text.document import FillSettings
from ibidem.text.formats import FORMATS
from ibidem.text.inline import plain_text
from ibidem.text.language import Languages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibidem.text.document import Document

    Target = Callable[[bytes, bool], None]

# Readers of inputs of 4 KiB take milliseconds; an instrumented reader on a busy machine takes up to 20 times as long.
MAX_SECONDS = 2.0
MAX_BYTES = 96 << 20
# An input is also read in this size, with its middle repeated: quadratic time shows there.
LONG_BYTES = 1 << 13
MAX_LONG_SECONDS = 10.0
_LONG_EVERY = 512
# One of this many inputs is written and read again while a fuzzer runs, besides those that reach new code.
_FULL_EVERY = 16

_LANGUAGES = Languages.from_tags("de", "en", None)
_LIMITS = ReadLimits(expanded_bytes=1 << 24, whole_bytes=1 << 20, unpack_bytes=1 << 26, dropped_in_a_row=20_000)
# Translations that contain the syntax of every format.
_HOSTILE = (
    '"',
    "'",
    "\\",
    "<b>",
    "&amp",
    "]]>",
    "-->",
    "\t",
    ",",
    ";",
    "|",
    "#",
    "=",
    ": ",
    "- ",
    "%s",
    "{0}",
    "\\n",
    "\u2028",
    "\U0001f600",
    "*/",
    "'''",
)


class Violation(Exception):  # noqa: N818
    """What an oracle found."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Check the processor time of a block, and the growth of this process's largest size in it."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    yield
    spent = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size) << (10 if sys.platform == "linux" else 0)
    if spent > seconds:
        raise Violation(f"reading took {spent:.1f} s")
    if grown > MAX_BYTES:
        raise Violation(f"reading took {grown >> 20} MiB of memory")


def is_sampled(data: bytes) -> bool:
    """Return whether an input is one of those that are always written and read again."""
    return zlib.crc32(data) % _FULL_EVERY == 0


def check_input(name: str, data: bytes, *, full: bool = True, long: bool | None = None) -> None:
    """Read an input with a target.

    Args:
        name: The name of the target.
        data: The input.
        full: Whether what was read is also written and read again.
        long: Whether the input is also read with its middle repeated; by default one of 512 inputs is.

    Raises:
        Violation: An oracle found something. Every other exception is a finding too.
    """
    read = TARGETS[name]
    with bounded(MAX_SECONDS):
        read(data, full)
    if data and (long or (long is None and zlib.crc32(data) % _LONG_EVERY == 0)):
        third = len(data) // 3
        middle = data[third : len(data) - third]
        with bounded(MAX_LONG_SECONDS):
            read(data[:third] + middle * (LONG_BYTES // len(middle)) + data[len(data) - third :], full)


def require(condition: object, message: str) -> None:
    if not condition:
        raise Violation(message)


def inject(texts: list[str]) -> list[str]:
    """Put syntax into texts, always the same for a text."""
    found = []
    for text in texts:
        number = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        part = _HOSTILE[number % len(_HOSTILE)]
        place = (number >> 8) % (len(text) + 1)
        found.append(text[:place] + part + text[place:])
    return found


def keep(texts: list[str]) -> list[str]:
    return texts


def sources(document: Document) -> list[str]:
    return [plain_text(segment.source) for segment in document.segments]


# Accelerators of labels may move.
_MOVED = str.maketrans("", "", "&_~")


def _compared(text: str) -> list[str]:
    return text.translate(_MOVED).split()


# Formats in which a translation can be anything, so that it may contain a heading or a line break.
_FREE = ("text", "plain", "markdown", "html", "subtitles")


def read_document(format: str) -> Target:
    """Return the target of the documents of a format: unchanged without targets, readable with hostile ones."""
    read = FORMATS[format].read_document
    assert read is not None
    wrap = _OFFICE.get(format, lambda data: data)
    settings = FillSettings(overwrite=True)

    def target(data: bytes, full: bool) -> None:
        data = wrap(data)
        try:
            document = read(data, "input", _LANGUAGES, True)
        except TextError:
            return
        require(b"".join(document.write({})) == data, "a document without targets is written differently")
        if not full:
            return
        before = sources(document)
        # With several delimiters, that of a table is a guess, which other texts may change.
        guessed = format == "csv" and sum(sign in data for sign in b",;\t|") > 1
        for translate in (keep, inject):
            targets, report = fill(document, translate, settings)
            require(report.segments == len(before), "a segment is missing in the report")
            written = b"".join(document.write(targets))
            try:
                again = read(written, "output", _LANGUAGES, True)
            except TextError as error:
                # The first bytes look like another format now, or another delimiter is guessed.
                if ": it is " in str(error) or guessed:
                    continue
                raise Violation(f"the written document cannot be read: {error}") from error
            if format in _FREE or guessed:
                continue
            after = sources(again)
            require(len(after) == len(before), f"{len(before)} segments became {len(after)}")
            if translate is keep and not report.failed:
                require([_compared(text) for text in after] == [_compared(text) for text in before], "a source changed")

    return target


def _pack(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _types(**kinds: str) -> bytes:
    """Return the list of the types of an Office document, by the names of its members."""
    base = "application/vnd.openxmlformats-officedocument."
    listed = "".join(f'<Override PartName="/{name}" ContentType="{base}{kind}+xml"/>' for name, kind in kinds.items())
    return f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{listed}</Types>'.encode()


def _docx(data: bytes) -> bytes:
    """Return an input that is an archive as it is, and another one as the text of an archive."""
    if data.startswith(b"PK"):
        return data
    name = "word/document.xml"
    return _pack(**{"[Content_Types].xml": _types(**{name: "wordprocessingml.document.main"}), name: data})


def _xlsx(data: bytes) -> bytes:
    if data.startswith(b"PK"):
        return data
    book, strings, sheet = "xl/workbook.xml", "xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"
    types = {
        name: f"spreadsheetml.{kind}"
        for name, kind in ((book, "sheet.main"), (strings, "sharedStrings"), (sheet, "worksheet"))
    }
    shared, _, rows = data.partition(b"\0")
    empty = b'<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"/>'
    return _pack(
        **{"[Content_Types].xml": _types(**types), book: empty, strings: shared, sheet: rows or b"<worksheet/>"}
    )


def _odt(data: bytes) -> bytes:
    if data.startswith(b"PK"):
        return data
    return _pack(mimetype=b"application/vnd.oasis.opendocument.text", **{"content.xml": data})


_OFFICE: dict[str, Callable[[bytes], bytes]] = {"docx": _docx, "xlsx": _xlsx, "odt": _odt}


def _folder() -> Path:
    """Return a folder of this process, in memory where there is one."""
    global _SCRATCH
    if _SCRATCH is None:
        _SCRATCH = tempfile.TemporaryDirectory(
            prefix="ibidem-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
    return Path(_SCRATCH.name)


_SCRATCH: tempfile.TemporaryDirectory[str] | None = None


def read_pairs(format: str, ending: str) -> Target:
    """Return the target of the parallel texts of a format: pairs that are written and read again are equal."""
    wrap = _OFFICE.get(format, lambda data: data)

    def target(data: bytes, full: bool) -> None:
        path = _folder() / f"input{ending}"
        path.write_bytes(wrap(data))
        corpus = Corpus([path], format=format, limits=_LIMITS)
        try:
            pairs = list(corpus)
        except TextError:
            return
        require(corpus.counts.kept == len(pairs), "the count of the pairs is wrong")
        for pair in pairs:
            require(pair.source.strip() and pair.target.strip(), "an empty side")
            require("\n" not in pair.source + pair.target, "a line break in a pair")
        if not pairs or not full:
            return
        writer = ("tsv", "jsonl", "tmx")[zlib.crc32(data) % 3]
        copy = _folder() / f"output.{writer}"
        done = write_pairs(pairs, copy, source_language="de", target_language="en")
        require(done.pairs == len(pairs), "the number of pairs written is wrong")
        again = [(pair.source, pair.target) for pair in Corpus([copy])]
        if not done.mended:
            require(again == [(pair.source, pair.target) for pair in pairs], f"{writer} gives other pairs back")

    return target


def read_terms(format: str) -> Target:
    """Return the target of the terms of a format: terms that are written and read again are equal."""

    def target(data: bytes, full: bool) -> None:
        try:
            entries = parse_terms(data, "input", "de", "en", format=format).entries
            glossary = Glossary("fuzz", "de", "en", entries)
        except GlossaryError:
            return
        for written in TERM_FORMATS if full else ():
            text = write_terms(glossary, written)
            again = parse_terms(text.encode(), "output", "de", "en", format=written).entries
            if written != "tbx":  # TBX has an entry for each translation
                require(again == entries, f"{written} gives other terms back")

    return target


_LOOP: asyncio.AbstractEventLoop | None = None


def _run(coroutine: Any) -> Any:
    global _LOOP
    _LOOP = _LOOP or asyncio.new_event_loop()
    return _LOOP.run_until_complete(coroutine)


def make_request(data: bytes) -> Request:
    """Return a request: the first line is the type of the content, the rest the body, which arrives in small parts."""
    head, _, body = data.partition(b"\n")
    step = max(1, 1 + zlib.crc32(head) % 64, len(body) // 50)
    parts = [body[start : start + step] for start in range(0, len(body), step)] or [b""]
    messages = iter(
        [
            {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
            for number, part in enumerate(parts)
        ]
    )

    async def receive() -> Any:
        return next(messages)

    headers = [(b"content-type", head.strip())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    return Request(scope, receive)


def read_body(data: bytes, _: bool) -> None:
    """Read the fields of a request."""
    try:
        body = _run(read_fields(make_request(data), Limits()))
    except HttpError as error:
        require(400 <= error.status < 500, f"status {error.status}")
        return
    json.dumps(body.fields, ensure_ascii=False).encode("utf-8")


def read_form(data: bytes, _: bool) -> None:
    """Read a form with a file: the file has the bytes that the form has."""

    @contextmanager
    def receive(_: str) -> Iterator[Upload]:
        yield Upload(path=_folder() / "upload")

    async def store(upload: Upload, copy: Any, part: bytes) -> None:
        upload.size += len(part)
        copy.write(part)

    async def read() -> None:
        async with read_upload(make_request(data), Limits(), receive, store) as (body, upload):
            content = upload.path.read_bytes()
            require(len(content) == upload.size and content in data, "other bytes than those of the form")
            json.dumps(body.fields, ensure_ascii=False).encode("utf-8")

    try:
        _run(read())
    except HttpError as error:
        require(400 <= error.status < 500, f"status {error.status}")


def read_markup(data: bytes, full: bool) -> None:
    """Translate the markup of a request: without a change of the text it stays as it is."""
    text = data.decode("utf-8", "replace")
    count = count_blocks(text)
    if full:
        require(count_blocks(translate_markup([text], keep)[0]) == count, "another number of blocks")
    translate_markup([text], inject)


def split_sentences(data: bytes, _: bool) -> None:
    """Split a text: the sentences are parts of it, in order."""
    text = data.decode("utf-8", "replace")
    last = 0
    for start, end in find_sentences(text, "de"):
        require(last <= start <= end <= len(text), "sentences overlap")
        require(not text[last:start].strip(), "text between two sentences")
        last = end
    require(not text[last:].strip(), "text after the last sentence")


def _targets() -> dict[str, Target]:
    found: dict[str, Target] = {}
    for name, format in FORMATS.items():
        if format.read_document:
            found[f"{name}.document"] = read_document(name)
        if format.read_pairs:
            found[f"{name}.pairs"] = read_pairs(name, format.endings[0])
    found |= {"gzip.pairs": read_pairs("tsv", ".tsv.gz"), "xz.pairs": read_pairs("tsv", ".tsv.xz")}
    found |= {f"{name}.terms": read_terms(name) for name in TERM_FORMATS}
    return found | {"body": read_body, "form": read_form, "markup": read_markup, "sentences": split_sentences}


TARGETS = _targets()
"""The targets by name: each reads an input, in full or not, and raises for a finding."""
