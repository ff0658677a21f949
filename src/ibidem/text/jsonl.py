"""JSON lines: one object a line that names both sides, by language or as source and target."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from ibidem.errors import TextError
from ibidem.text.pair import Dropped, Found, Unit, located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ibidem.text.language import Languages
    from ibidem.text.stream import Stream

_MOST_KEYS = 20
_LONGEST_KEY = 40


def read_jsonl(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield line by line from any of three shapes, languages compared by their first subtag.

    They are `{"translation": {"de": …, "en": …}}`, which Hugging Face datasets have, `{"de": …, "en": …}` and
    `{"source": …, "target": …}`. An object that names an "origin" and a "location", as those of an exported memory
    do, has them instead of its own file and line.
    """
    for number, line in stream.lines():
        if not line.strip():
            yield Dropped("blank line")
            continue
        try:
            record = _parse(line)
            source, target = _sides(record, languages)
        except ValueError as error:
            raise TextError(f"{stream.name}, line {number}: {error}") from error
        yield located(Unit(source, target, number), record.get("origin"), record.get("location"))


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error}). Write one complete JSON object on each line.") from error


def _sides(record: Any, languages: Languages) -> tuple[str, str]:
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        record = record["translation"]
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__} where an object must be. {_shape(languages)}")
    named: dict[str, str] = {}
    for key in record:
        if subtag := languages.match(key):
            named.setdefault(subtag, key)
    if not named and "source" in record and "target" in record:
        named = {languages.source: "source", languages.target: "target"}
    for language in (languages.source, languages.target):
        if language not in named:
            raise ValueError(f"no {language!r} side; the keys found are: {list_keys(record)}. {_shape(languages)}")
    return _string(record, named[languages.source]), _string(record, named[languages.target])


def list_keys(record: Iterable[str]) -> str:
    """List the first keys of an object, each cut to a length that fits a message."""
    shown = [
        repr(key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…") for key in islice(record, _MOST_KEYS + 1)
    ]
    return ", ".join([*shown[:_MOST_KEYS], *(["…"] if len(shown) > _MOST_KEYS else [])]) or "none"


def _string(record: dict[str, Any], key: str) -> str:
    text = record[key]
    if not isinstance(text, str):
        raise ValueError(
            f"the value of {key!r} is {type(text).__name__}, not a string; the keys found are: {list_keys(record)}. "
            "Make it a string, or remove the line."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the value of {key!r} has half a surrogate pair (\\u{ord(text[error.start]):04x}), which is no "
            "character. Escape both halves, or write the character itself."
        ) from error
    return text


def _shape(languages: Languages) -> str:
    return (
        f'Write {{"translation": {{"{languages.source}": …, "{languages.target}": …}}}}, or choose the '
        "languages "
        "with --source-language and --target-language."
    )
