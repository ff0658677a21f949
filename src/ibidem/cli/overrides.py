"""--set NAME=VALUE: every field of a settings object, for those that have no option of their own."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Settings = TypeVar("Settings")
_SIMPLE = (bool, int, float, str, type(None))


def override(settings: Settings, assignments: Sequence[str]) -> Settings:
    """The settings with fields changed as `NAME=VALUE` says; `PART.NAME=VALUE` reaches the settings of a part."""
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment} has no value: write it as in --set {_names(settings)[0]}=VALUE.")
        settings = _assign(settings, name.strip().replace("-", "_"), text.strip(), assignment)
    return settings


def _assign(settings: Any, name: str, text: str, assignment: str) -> Any:
    first, _, rest = name.partition(".")
    part = getattr(settings, first, None)
    if rest and is_dataclass(part):
        return replace(settings, **{first: _assign(part, rest, text, assignment)})
    if rest or name not in _names(settings):
        raise UsageError(f"--set {assignment} names nothing: use one of {', '.join(_names(settings))}.")
    kinds = _kinds(get_type_hints(type(settings))[name])
    for kind in kinds:
        try:
            return replace(settings, **{name: _READERS[kind](text)})
        except ValueError:
            continue
    wanted = " or ".join(_WORDS[kind] for kind in kinds)
    raise UsageError(f"--set {assignment} cannot be read: {name} takes {wanted}.")


def _names(settings: Any) -> list[str]:
    """The fields that a text can set, and those of parts as PART.NAME."""
    hints = get_type_hints(type(settings))
    plain = [field.name for field in fields(settings) if _kinds(hints[field.name])]
    parts = [field.name for field in fields(settings) if is_dataclass(getattr(settings, field.name))]
    return plain + [f"{part}.{name}" for part in parts for name in _names(getattr(settings, part))]


def _kinds(hint: Any) -> list[type]:
    """The simple types that a field may have, the strictest first; none for a field that no text can set."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [kind for kind in _READERS if kind in options] if all(option in _SIMPLE for option in options) else []


def _read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _read_none(text: str) -> None:
    if text != "none":
        raise ValueError(text)


_READERS: dict[type, Any] = {type(None): _read_none, bool: _read_flag, int: int, float: float, str: str}
_WORDS = {type(None): "none", bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
