"""Request bodies: JSON, forms, and streams with a limit on size and time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from multipart import PushMultipartParser, parse_options_header
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from ibidem.serve.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request

    from ibidem.serve.settings import Limits

Model = TypeVar("Model", bound=BaseModel)

_MAX_FIELDS = 2_000
# 256 kilobits a second, so that a large file can be sent over a slow line.
_MIN_BYTES_PER_SECOND = 1 << 15
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
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
        request: The request. A field that occurs more than once in a form becomes a list; an empty body has no fields.
        limits: The limits on size and time.

    Returns:
        Fields whose strings can all be encoded as UTF-8.

    Raises:
        HttpError: 400, the body is malformed or has a lone surrogate; and the errors of `stream_body`.
    """
    body = b"".join([part async for part in stream_body(request, limits.body_bytes, limits.body_seconds)])
    if not body:
        return Body({}, typed=False)
    content_type = request.headers.get("content-type", "application/json")
    kind = content_type.partition(";")[0].strip().lower()
    try:
        # `curl -d` declares JSON as a form.
        if kind == _FORM and not body.lstrip().startswith(b"{"):
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
            return Body(_collect(pairs), typed=False)
        if kind == _MULTIPART:
            return Body(_collect(_parse_multipart(content_type, body)), typed=False)
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


def parse_fields(model: type[Model], body: Body) -> Model:
    """Validate the fields of a body.

    Args:
        model: The schema. Values of a form are converted to its types, values of JSON are not.
        body: The fields.

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
