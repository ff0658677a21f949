"""Bodies of requests: JSON, forms, and streams that are counted while they are read."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from multipart import PushMultipartParser, parse_options_header
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from ibidem.serve.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request

    from ibidem.serve.settings import Limits

Model = TypeVar("Model", bound=BaseModel)

_MOST_FIELDS = 2_000
# Bytes a second: 256 kilobit, so that a large file can be sent over a slow line.
_SLOWEST = 1 << 15
_FORM = "application/x-www-form-urlencoded"
_PARTS = "multipart/form-data"
_LONGEST_PART_HEADER = 4_096
_MOST_PART_HEADERS = 8
_TEXT_ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1")


class Body(NamedTuple):
    """The fields of a body; typed: whether it was JSON, in which a number is no string and no truth value."""

    fields: dict[str, Any]
    typed: bool


async def stream_body(request: Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    """The parts of a body as they come; raises Refusal 413 for too many bytes, 408 when they take too long.

    Bytes are counted as they arrive: what the header says is only a reason to refuse sooner. The whole body has
    `seconds`, and a second more for every `_SLOWEST` bytes that have arrived, so that a large file may take longer
    than a request, but a client that sends a byte now and then may not.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "Compressed bodies are not read: send the body as it is.")
    declared = request.headers.get("content-length", "")
    taken = 0
    began = asyncio.get_running_loop().time()
    parts = request.stream()
    while True:
        if taken > limit or (declared.isdigit() and int(declared[:20]) > limit):
            raise Refusal(413, f"The body is larger than {limit:,} bytes.")
        try:
            async with asyncio.timeout_at(began + seconds + taken / _SLOWEST):
                part = await anext(parts, None)
        except TimeoutError:
            raise Refusal(408, "The body took too long to arrive.") from None
        except ClientDisconnect:
            raise Refusal(499, "The client is gone.") from None
        if part is None:
            return
        taken += len(part)
        if taken <= limit:
            yield part


async def read_fields(request: Request, limits: Limits) -> Body:
    """The fields of a JSON object or of a form; a form's field that is there twice is a list, no body is no field.

    All strings can be encoded as UTF-8: a JSON body with a lone surrogate is refused.
    """
    body = b"".join([part async for part in stream_body(request, limits.body_bytes, limits.body_seconds)])
    if not body:
        return Body({}, typed=False)
    content_type = request.headers.get("content-type", "application/json")
    kind = content_type.partition(";")[0].strip().lower()
    try:
        # `curl -d` and others say that JSON is a form.
        if kind == _FORM and not body.lstrip().startswith(b"{"):
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
            return Body(_collect(pairs), typed=False)
        if kind == _PARTS:
            return Body(_collect(_read_parts(content_type, body)), typed=False)
        text = body.decode("utf-8-sig")
        fields = json.loads(text)
        if "\\u" in text:
            _refuse_lone_surrogates(fields)
    except (ValueError, RecursionError):
        raise Refusal(400, f"The body is no {'form' if kind in (_FORM, _PARTS) else 'JSON'} in UTF-8.") from None
    if not isinstance(fields, dict):
        raise Refusal(400, "The body is no JSON object.")
    return Body(fields, typed=True)


def _refuse_lone_surrogates(fields: object) -> None:
    """Raise Refusal 400 for a string, also a nested one or a name, that cannot be encoded as UTF-8."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal(400, "The body holds half of a surrogate pair, which is no character.") from None


def parse(model: type[Model], body: Body) -> Model:
    """Make a request of the fields of a body; values of a form are converted to the types of the model.

    Raises Refusal 400 with the name of the first field that is missing or wrong.
    """
    try:
        return model.model_validate(body.fields, strict=body.typed)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "body"
        if first["type"] == "missing":
            raise Refusal(400, f"Invalid request: missing {name} parameter") from None
        raise Refusal(400, f"Invalid request: {name}: {first['msg']}") from None


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


def _read_parts(content_type: str, body: bytes) -> list[tuple[str, str]]:
    """Parse a multipart form in time linear in its size.

    Raises ValueError (which the parser's own errors are) for a form that is malformed, incomplete or over a limit.
    """
    _, options = parse_options_header(content_type)
    fields: list[tuple[str, str]] = []
    name, charset, payload = "", "", b""
    # Without `strict`, continued header lines are joined again for every line, which is quadratic.
    with PushMultipartParser(
        options.get("boundary", ""),
        max_header_size=_LONGEST_PART_HEADER,
        max_header_count=_MOST_PART_HEADERS,
        max_segment_count=_MOST_FIELDS,
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
                name, charset, payload = event.name, _text_encoding(event.charset), b""
    return fields


def _text_encoding(charset: str | None) -> str:
    """The encoding of a part; others than these are refused: some take quadratic time, some give lone surrogates."""
    encoding = (charset or "utf-8").lower()
    if encoding not in _TEXT_ENCODINGS:
        raise ValueError("unknown charset")
    return encoding
