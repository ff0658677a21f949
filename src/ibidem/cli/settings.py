"""Settings without an option of their own: `--set NAME=VALUE`, and the command `settings` that lists them.

The names, types and defaults are those of the settings classes; the meanings are read from their docstrings.
"""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting that has no option; may be repeated. `ibidem settings` lists them.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class TextSettings:
    """How the given text files are read.

    Attributes:
        format: Format of the text, where the name of the file does not show it.
        dev_format: Format of the dev set, where the name of the file does not show it.
        catalogue_language: Language of the msgstr entries of a PO or MO file.
        encoding: Encoding of text that is neither UTF-8 nor UTF-16, such as cp1252.
    """

    format: str | None = None
    dev_format: str | None = None
    catalogue_language: str | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class ModelSettings:
    """How the base model runs.

    Attributes:
        dtype: Arithmetic of the base model: float32, float16, bfloat16 or, on a CPU, int8; auto takes int8 if possible.
        source_prefix: Text in front of every source sentence (T5).
    """

    dtype: str = "auto"
    source_prefix: str = ""


@dataclass(frozen=True)
class TrainedModelSettings:
    """How the model that is trained reads its text.

    Attributes:
        source_prefix: Text in front of every source sentence (T5).
    """

    source_prefix: str = ""


class Setting(NamedTuple):
    """A setting as `ibidem settings` lists it.

    Attributes:
        name: The name for `--set`, such as `compact.dimension`.
        default: The default as `--set` reads it.
        meaning: The description from the docstring of the settings class.
    """

    name: str
    default: str
    meaning: str


def override(settings: T, assignments: Sequence[str]) -> T:
    """Return the settings with fields changed by assignments.

    Args:
        settings: A settings dataclass; fields that are dataclasses themselves are reached by `PART.NAME`.
        assignments: Texts `NAME=VALUE`.

    Returns:
        A new object; the given one is unchanged.

    Raises:
        UsageError: An assignment has no value, names no setting, or its value has the wrong type.

    Examples:
        >>> from ibidem.learn import LearnSettings
        >>> override(LearnSettings(), ["compact.dimension=32"]).compact.dimension
        32
    """
    for assignment in assignments:
        name, text = _split(assignment)
        settings = _assign(settings, name, text, assignment)
    return settings


def override_parts(parts: Mapping[str, Any], assignments: Sequence[str]) -> list[Any]:
    """Override several settings objects at once.

    Args:
        parts: Settings by the first part of their names; the settings of the empty name take all other assignments.
        assignments: Texts `NAME=VALUE`.

    Returns:
        The settings in the order of `parts`.

    Raises:
        UsageError: See `override`.
    """
    given: dict[str, list[str]] = {name: [] for name in parts}
    for assignment in assignments:
        first, dot, rest = assignment.partition(".")
        named = bool(dot) and first in parts and "=" not in first
        given[first if named else ""].append(rest if named else assignment)
    return [override(settings, given[name]) for name, settings in parts.items()]


def list_settings(settings: Any, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a dataclass that `--set` can change, those of its parts too.

    Args:
        settings: An object of a settings dataclass; its values are the defaults.
        prefix: Text before each name, such as `compact.`.

    Examples:
        >>> [setting.name for setting in list_settings(ModelSettings(), "model.")]
        ['model.dtype', 'model.source_prefix']
    """
    meanings = _read_meanings(type(settings))
    for field in fields(settings):
        value = getattr(settings, field.name)
        name = f"{prefix}{field.name}"
        if is_dataclass(value):
            yield from list_settings(value, f"{name}.")
        elif _reader(settings, field.name):
            yield Setting(name, _write(value), meanings.get(field.name, ""))


def settings(
    command: Annotated[str, typer.Argument(help="learn, adapt, cluster, compact, prune, tune or serve.")] = "learn",
    search: Annotated[
        str | None, typer.Option("--search", help="List only settings whose name or meaning has this.")
    ] = None,
) -> None:
    """List the settings that --set changes, with their default and meaning."""
    from ibidem.cli.console import print_table

    known = _settings_of()
    if command not in known:
        raise UsageError(f"The command '{command}' has no settings: use one of {', '.join(known)}.")
    found = [setting for prefix, part in known[command]().items() for setting in list_settings(part, prefix)]
    wanted = (search or "").casefold()
    rows = [tuple(row) for row in found if wanted in f"{row.name} {row.meaning}".casefold()]
    print_table(f"ibidem {command} --set NAME=VALUE", rows, ("name", "default", "meaning"))


def _settings_of() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return, for each command, a function that makes its settings by prefix."""
    from ibidem.learn import AdaptSettings, ClusterSettings, CompactSettings, LearnSettings, PruneSettings, TuneSettings

    def of_server() -> dict[str, Any]:
        from ibidem.serve import Limits

        return {"": Limits()}

    return {
        "learn": lambda: {"text.": TextSettings(), "model.": ModelSettings(), "": LearnSettings()},
        "adapt": lambda: {"text.": TextSettings(), "model.": TrainedModelSettings(), "": AdaptSettings()},
        "cluster": lambda: {"": ClusterSettings()},
        "compact": lambda: {"": CompactSettings()},
        "prune": lambda: {"": PruneSettings("redundant")},
        "tune": lambda: {"": TuneSettings()},
        "serve": of_server,
    }


def _split(assignment: str) -> tuple[str, str]:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise UsageError(f"--set {assignment} has no value: write it as NAME=VALUE. `ibidem settings` lists the names.")
    return name.strip().replace("-", "_"), text


def _assign(settings: Any, name: str, text: str, assignment: str) -> Any:
    first, _, rest = name.partition(".")
    part = getattr(settings, first, None)
    if rest and is_dataclass(part):
        return replace(settings, **{first: _assign(part, rest, text, assignment)})
    reader = None if rest else _reader(settings, name)
    if reader is None:
        names = ", ".join(setting.name for setting in list_settings(settings))
        raise UsageError(f"--set {assignment}: there is no setting '{name}': use one of {names}.")
    read, wanted = reader
    try:
        value = read(text)
    except ValueError as error:
        raise UsageError(f"--set {assignment}: invalid value '{text}': {name} takes {wanted}.") from error
    return replace(settings, **{name: value})


def _reader(settings: Any, name: str) -> tuple[Callable[[str], Any], str] | None:
    """Return how a field is read from text and what it takes; None for a field that text cannot set."""
    if name not in {field.name for field in fields(settings)}:
        return None
    if name == "objectives":
        from ibidem.learn import parse_objectives

        return parse_objectives, "a sum of objectives such as nce+ranking or nce:1,ranking:0.5"
    hint = get_type_hints(type(settings), localns={"Path": Path})[name]
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if not all(option in _READERS for option in options):
        return None
    kinds = [kind for kind in _READERS if kind in options]  # the strictest type first

    def read(text: str) -> Any:
        for kind in kinds:
            try:
                return _READERS[kind](text)
            except ValueError:
                continue
        raise ValueError(text)

    return read, " or ".join(_DESCRIPTIONS[kind] for kind in kinds)


def _read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _read_none(text: str) -> None:
    if text != "none":
        raise ValueError(text)


_READERS: dict[type, Any] = {type(None): _read_none, bool: _read_flag, int: int, float: float, Path: Path, str: str}
_DESCRIPTIONS = {
    type(None): "none",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    str: "a text",
}


def _write(value: Any) -> str:
    """Return a value as `--set` reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{name}:{weight:g}" for name, weight in value.items())
    if isinstance(value, tuple):
        return ",".join(f"{item[0]}:{item[1]:g}" if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def _read_meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each field from the `Attributes:` section of a class's docstring."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        text = inspect.cleandoc(base.__doc__ or "")
        found = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n?|\n)*)", text, re.MULTILINE)
        for item in re.split(r"\n(?=[ ]{4}\w)", "\n" + found.group(1)) if found else ():
            name, colon, meaning = item.strip().partition(":")
            if colon:
                meanings[name.split("(")[0].strip()] = " ".join(meaning.split())
    return meanings
