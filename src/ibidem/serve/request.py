"""Requests: their bodies, read within limits as JSON or as a form, and their options (languages, memories, outputs)."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from multipart import PushMultipartParser, parse_options_header
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from ibidem.serve.http_error import HttpError
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from starlette.requests import Request

    from ibidem.decode import Splitting
    from ibidem.glossary import Glossary
    from ibidem.serve.jobs import Upload
    from ibidem.serve.limits import Limits


Model = TypeVar("Model", bound=BaseModel)
Store: TypeAlias = Callable[["Upload", BinaryIO, bytes], Awaitable[None]]
"""Counts and writes a part of an uploaded file."""

_MAX_FIELDS = 2_000
# 256 kilobits a second, so that a large file can be sent over a slow line.
_MIN_BYTES_PER_SECOND = 1 << 15
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_MAX_FORM_BYTES = 1 << 16
_MAX_PART_HEADER_BYTES = 4_096
_MAX_PART_HEADERS = 8
_TEXT_ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1")


class Body(NamedTuple):
    """The fields of a body.

    Attributes:
        fields: Values by name.
        typed: Whether the body was JSON, in which a number is not a string or a truth value.
    """

    fields: dict[str, Any]
    typed: bool


async def stream_body(request: Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive.

    The limits apply to the bytes that arrive; the declared length only causes an earlier error. The time limit grows
    by a second for every 32 KiB, so that a large file may take longer than a small request, but a client that sends a
    byte now and then may not.

    Args:
        request: The request.
        limit: Largest number of bytes.
        seconds: Seconds in which an empty body must end.

    Yields:
        Parts of at least one byte, in order.

    Raises:
        HttpError: 408, the body takes too long; 413, it is too large; 415, it is compressed; 499, the client closed
            the connection.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HttpError(415, "Compressed bodies are not supported: send the body uncompressed.")
    declared = request.headers.get("content-length", "")
    received = 0
    began = asyncio.get_running_loop().time()
    parts = request.stream()
    while True:
        if received > limit or (declared.isdigit() and int(declared[:20]) > limit):
            raise HttpError(413, f"The body is larger than {limit:,} bytes.")
        try:
            async with asyncio.timeout_at(began + seconds + received / _MIN_BYTES_PER_SECOND):
                part = await anext(parts, None)
        except TimeoutError:
            raise HttpError(408, "The body took too long to arrive.") from None
        except ClientDisconnect:
            raise HttpError(499, "The client closed the connection.") from None
        if part is None:
            return
        received += len(part)
        if received <= limit:
            yield part


async def read_fields(request: Request, limits: Limits) -> Body:
    """Read the fields of a JSON object or of a form.

    Args:
        request: The request. A field that occurs more than once in a form becomes a list. A field that a form lacks,
            or a request without a body, is taken from the query parameters.
        limits: The limits on size and time.

    Returns:
        Fields whose strings can all be encoded as UTF-8.

    Raises:
        HttpError: 400, the body is malformed or has a lone surrogate; and the errors of `stream_body`.
    """
    body = b"".join([part async for part in stream_body(request, limits.body_bytes, limits.body_seconds)])
    if not body:
        # Some clients send the fields of a POST request as query parameters.
        return read_query(request)
    content_type = request.headers.get("content-type", "application/json")
    kind = content_type.partition(";")[0].strip().lower()
    try:
        # `curl -d` declares JSON as a form.
        if kind == _FORM and not body.lstrip().startswith(b"{"):
            return Body(read_query(request).fields | _collect(_parse_form(body)), typed=False)
        if kind == _MULTIPART:
            return Body(read_query(request).fields | _collect(_parse_multipart(content_type, body)), typed=False)
        text = body.decode("utf-8-sig")
        fields = json.loads(text)
        if "\\u" in text:
            _refuse_lone_surrogates(fields)
    except (ValueError, RecursionError):
        expected = "a form" if kind in (_FORM, _MULTIPART) else "JSON"
        raise HttpError(400, f"Invalid body: expected {expected} in UTF-8.") from None
    if not isinstance(fields, dict):
        raise HttpError(400, "Invalid body: expected a JSON object.")
    return Body(fields, typed=True)


def read_query(request: Request) -> Body:
    """Read the query parameters of a request as the fields of a form.

    Args:
        request: The request.

    Raises:
        HttpError: 400, the query is not UTF-8.
    """
    try:
        return Body(_collect(_parse_form(request.scope["query_string"])), typed=False)
    except ValueError:
        raise HttpError(400, "Invalid query: expected a form in UTF-8.") from None


@asynccontextmanager
async def read_upload(
    request: Request, limits: Limits, receive: Callable[[str], AbstractContextManager[Upload]], store: Store
) -> AsyncIterator[tuple[Body, Upload]]:
    """Read a multipart form with a file, which is written to the disk as it arrives.

    Args:
        request: The request.
        limits: The limits on size and time.
        receive: Provides the place of the file by its name; the place is given up if the form is not complete.
        store: Writes a part of the file.

    Yields:
        The fields and the file, once.

    Raises:
        HttpError: 400, the body is no such form; and the errors of `stream_body`.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != _MULTIPART:
        raise HttpError(400, "Invalid body: expected a form (multipart/form-data) with a file.")
    _, options = parse_options_header(content_type)
    fields: list[tuple[str, str]] = []
    limit = limits.document_bytes + _MAX_FORM_BYTES
    with ExitStack() as stack:
        upload: Upload | None = None
        copy: BinaryIO | None = None
        part, in_file, value = None, False, b""
        try:
            parser = stack.enter_context(
                PushMultipartParser(
                    options.get("boundary", ""),
                    max_header_size=_MAX_PART_HEADER_BYTES,
                    max_header_count=_MAX_PART_HEADERS,
                    max_segment_count=_MAX_FIELDS,
                    max_segment_size=limit,
                    strict=True,
                )
            )
            async for block in stream_body(request, limit, limits.body_seconds):
                for event in parser.parse(block):
                    if event is None:
                        if not in_file and part is not None:
                            fields.append((part.name, value.decode(_check_charset(part.charset))))
                    elif isinstance(event, bytes | bytearray):
                        if in_file and upload is not None and copy is not None:
                            await store(upload, copy, bytes(event))
                        elif len(value) + len(event) > _MAX_FORM_BYTES:
                            raise ValueError("a field is too long")
                        else:
                            value += event
                    else:
                        part, value = event, b""
                        in_file = event.filename is not None
                        if in_file:
                            if upload is not None:
                                raise ValueError("two files")
                            upload = stack.enter_context(receive(event.filename))
                            copy = stack.enter_context(upload.path.open("wb"))
        except ValueError:
            raise HttpError(400, "Invalid body: expected a form (multipart/form-data) with one file.") from None
        if upload is None or copy is None or not parser.closed:
            raise HttpError(400, "Invalid request: missing file parameter")
        copy.close()
        yield Body(_collect(fields), typed=False), upload


def parse_fields(model: type[Model], body: Body) -> Model:
    """Validate the fields of a body.

    Args:
        model: The schema. Values of a form are converted to its types, values of JSON are not.
        body: The fields.

    Returns:
        The validated body.

    Raises:
        HttpError: 400, with the name of the first field that is missing or invalid.
    """
    try:
        return model.model_validate(body.fields, strict=body.typed)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "body"
        if first["type"] == "missing":
            raise HttpError(400, f"Invalid request: missing {name} parameter") from None
        raise HttpError(400, f"Invalid request: {name}: {first['msg']}") from None


def _refuse_lone_surrogates(fields: object) -> None:
    """Refuse strings, also nested ones and names, that cannot be encoded as UTF-8."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise HttpError(400, "Invalid body: it contains a lone surrogate, which is not a character.") from None


def _collect(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    collected: dict[str, Any] = {}
    for name, value in fields:
        if name not in collected:
            collected[name] = value
        elif isinstance(collected[name], list):
            collected[name].append(value)
        else:
            collected[name] = [collected[name], value]
    return collected


def _parse_form(form: bytes) -> list[tuple[str, str]]:
    """Parse fields that are encoded as in a query.

    Raises:
        ValueError: There are too many fields, or a field is not UTF-8; replacement characters would be translated.
    """
    return parse_qsl(form.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")


def _parse_multipart(content_type: str, body: bytes) -> list[tuple[str, str]]:
    """Parse a multipart form in time linear in its size.

    Raises:
        ValueError: The form is malformed, incomplete or over a limit. The parser's own errors are of this type.
    """
    _, options = parse_options_header(content_type)
    fields: list[tuple[str, str]] = []
    name, charset, payload = "", "", b""
    # Without `strict`, continued header lines are joined again for every line, which is quadratic.
    with PushMultipartParser(
        options.get("boundary", ""),
        max_header_size=_MAX_PART_HEADER_BYTES,
        max_header_count=_MAX_PART_HEADERS,
        max_segment_count=_MAX_FIELDS,
        max_segment_size=len(body),
        strict=True,
    ) as parser:
        # The whole body is parsed at once, so that the payload of a part is a single event.
        for event in parser.parse(body):
            if isinstance(event, bytes):
                payload = event
            elif event is None:
                fields.append((name, payload.decode(charset)))
            else:
                name, charset, payload = event.name, _check_charset(event.charset), b""
    return fields


def _check_charset(charset: str | None) -> str:
    """Return the encoding of a part; some other encodings take quadratic time, some decode to lone surrogates."""
    encoding = (charset or "utf-8").lower()
    if encoding not in _TEXT_ENCODINGS:
        raise ValueError("unknown charset")
    return encoding


_LANGUAGE_NAMES = """
af:Afrikaans sq:Albanian am:Amharic ar:Arabic hy:Armenian as:Assamese az:Azerbaijani eu:Basque be:Belarusian bn:Bengali
bs:Bosnian bg:Bulgarian my:Burmese ca:Catalan zh:Chinese hr:Croatian cs:Czech da:Danish nl:Dutch en:English eo:Esperanto
et:Estonian fi:Finnish fr:French gl:Galician ka:Georgian de:German el:Greek gu:Gujarati he:Hebrew hi:Hindi hu:Hungarian
is:Icelandic id:Indonesian ga:Irish it:Italian ja:Japanese kn:Kannada kk:Kazakh km:Khmer ko:Korean ky:Kyrgyz lo:Lao
la:Latin lv:Latvian lt:Lithuanian lb:Luxembourgish mk:Macedonian ms:Malay ml:Malayalam mt:Maltese mr:Marathi
mn:Mongolian ne:Nepali no:Norwegian nb:Norwegian nn:Norwegian or:Odia fa:Persian pl:Polish pt:Portuguese pa:Punjabi
ro:Romanian
ru:Russian sr:Serbian si:Sinhala sk:Slovak sl:Slovenian so:Somali es:Spanish sw:Swahili sv:Swedish tl:Tagalog tg:Tajik
ta:Tamil te:Telugu th:Thai tr:Turkish tk:Turkmen uk:Ukrainian ur:Urdu ug:Uyghur uz:Uzbek vi:Vietnamese cy:Welsh xh:Xhosa
yo:Yoruba zu:Zulu
"""
_NAME_BY_CODE = dict(pair.split(":") for pair in _LANGUAGE_NAMES.split())
_MAX_QUOTED = 40
_SPLITTINGS: dict[str, Splitting] = {"0": "off", "1": "sentences", "nonewlines": "nonewlines"}


@dataclass(frozen=True)
class RequestOptions:
    """Options of a request other than its texts; requests with equal options share batches.

    Attributes:
        memories: Names and weights of the memories, in the order of the server's memories.
        alternatives: Number of further translations.
        explain: Whether to explain the translation.
        glossary: The glossary whose terms the translation must contain; None for none.
        pair: The source and the target language; None for the default pair of the server.
        with_vectors: Whether to compute the source vectors of the pieces, by which matches are found.
    """

    memories: tuple[tuple[str, float], ...] = ()
    alternatives: int = 0
    explain: bool = False
    glossary: Glossary | None = None
    pair: tuple[str, str] | None = None
    with_vectors: bool = False


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the name is not in the table.

    Args:
        code: A two-letter code in lower case.

    Examples:
        >>> language_name("de"), language_name("tlh")
        ('German', 'tlh')
    """
    return _NAME_BY_CODE.get(code, code)


def choose_pair(
    pairs: Sequence[tuple[str, str]],
    source: str | None,
    target: str | None,
    detect: Callable[[], str | None] = lambda: None,
) -> tuple[str, str]:
    """Choose the pair of languages of a request.

    Args:
        pairs: The pairs of the server, the default first.
        source: Source language of the request; None, `""` and `"auto"` stand for any.
        target: Target language of the request; None and `""` stand for any.
        detect: Returns the language of the text, or None if it is uncertain; called only if several pairs are possible.

    Returns:
        The pair; of several possible ones that with the detected source language, else the first.

    Raises:
        HttpError: 400, the server does not translate this pair.

    Examples:
        >>> choose_pair([("de", "en"), ("en", "de")], "auto", "de")
        ('en', 'de')
    """
    wanted_source = None if source in (None, "", "auto") else primary_language(str(source))
    wanted_target = None if target in (None, "") else primary_language(str(target))
    possible = [pair for pair in pairs if wanted_source in (None, pair[0]) and wanted_target in (None, pair[1])]
    if len(possible) > 1 and wanted_source is None:
        found = detect()
        possible = [pair for pair in possible if pair[0] == found] or possible
    if possible:
        return possible[0]
    known = "; ".join(f"from {one} to {other}" for one, other in pairs)
    if wanted_source is not None and all(wanted_source != one for one, _ in pairs):
        raise HttpError(400, f"{_shorten(source)} is not supported: this server translates {known}")
    if wanted_target is not None and all(wanted_target != other for _, other in pairs):
        raise HttpError(400, f"{_shorten(target)} is not supported: this server translates {known}")
    raise HttpError(400, f"{_shorten(source)} to {_shorten(target)} is not supported: this server translates {known}")


def choose_splitting(given: str | None, markup: str | None = None) -> Splitting | None:
    """Resolve DeepL's option `split_sentences`.

    Args:
        given: The value of the option: `0`, `1`, `nonewlines`, or None if it is missing.
        markup: The kind of markup, `html` or `xml`; None for plain text. Line breaks in HTML are spaces.

    Returns:
        Where to split the texts; None for the setting of the server.

    Examples:
        >>> choose_splitting("0"), choose_splitting("1"), choose_splitting(None, "html")
        ('off', 'sentences', 'nonewlines')
    """
    if given is None:
        return "nonewlines" if markup == "html" else None
    return _SPLITTINGS[given]


def choose_memories(
    given: Sequence[str] | Mapping[str, float] | None, available: Mapping[str, float], most: int
) -> tuple[tuple[str, float], ...]:
    """Resolve the memories that a request names.

    Args:
        given: Names, each alone or as `NAME:WEIGHT`, or weights by name; None for all memories. The name `none` is
            ignored, so that `["none"]` selects the base model alone.
        available: Default weights of the server's memories by name.
        most: Largest number of memories of a request.

    Returns:
        Names and weights in the order of `available`, so that equal selections compare equal.

    Raises:
        HttpError: 400, there are too many names, an unknown name or an invalid weight.

    Examples:
        >>> choose_memories(["b:3", "a"], {"a": 1.0, "b": 1.0}, 16)
        (('a', 1.0), ('b', 3.0))
    """
    if given is None:
        return tuple(available.items())
    if len(given) > most:
        raise HttpError(400, f"Invalid request: at most {most} memories")
    if hasattr(given, "items"):
        chosen = dict(given.items())
    else:
        chosen = dict(_split_weight(name, available) for name in given if name != "none")
    for name, weight in chosen.items():
        if name not in available:
            raise HttpError(400, f"There is no memory {_shorten(name)}")
        if not 0 < weight < math.inf:
            raise HttpError(400, f"Invalid weight of the memory {name}: it must be above 0 and finite")
    return tuple((name, float(chosen[name])) for name in available if name in chosen)


def _split_weight(value: str, available: Mapping[str, float]) -> tuple[str, float]:
    """Split NAME:WEIGHT; a name alone has its default weight."""
    name, colon, weight = value.rpartition(":")
    if value in available or not colon:
        return value, available.get(value, 1.0)
    try:
        return name, float(weight)
    except ValueError:
        return value, 1.0


def _shorten(text: object) -> str:
    """Limit the length of a client's text in an error message."""
    shown = str(text)
    return shown if len(shown) <= _MAX_QUOTED else f"{shown[:_MAX_QUOTED]}…"
