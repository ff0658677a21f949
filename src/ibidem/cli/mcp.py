"""The command mcp: a server of the Model Context Protocol on stdin and stdout, for assistants."""

from __future__ import annotations

import threading
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note
from ibidem.cli.options import TranslatorOptions
from ibidem.cli.serve import open_translators
from ibidem.errors import IbidemError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.decode import LoadedMemory, Translator, Word

_ORIGIN = "assistant"
_MOST_CITED = 3
_MOST_FOUND = 100
_MAX_CHARACTERS = 20_000
_INSTRUCTIONS = (
    "Translates texts with a translation model and memories of approved translations. Call `directions` to see the "
    "languages and memories. Translate whole sentences or texts, not single words, where you can."
)


def mcp(
    *,
    translator_options: TranslatorOptions,
    combiner: options.Combiner = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no tool that changes a memory.")] = False,
) -> None:
    """Serve the Model Context Protocol on stdin and stdout, for assistants and editors that start this command.

    The tools translate, explain a translation, search the memories, and add approved translations to them. A memory
    whose folder does not exist is created.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise UsageError(f"`ibidem mcp` needs {error.name}: install it with pip install 'ibidem[mcp]'.") from error
    from ibidem import __version__

    tools = Tools(open_translators(translator_options, combiner, create=not read_only))
    server = MCPServer("ibidem", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")

    def report_errors(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @wraps(tool)
        def call(*given: Any, **named: Any) -> dict[str, Any]:
            try:
                return tool(*given, **named)
            except IbidemError as error:
                raise ToolError(str(error)) from error

        return call

    for tool in (tools.directions, tools.translate, tools.explain, tools.search):
        server.add_tool(report_errors(tool))
    if not read_only:
        server.add_tool(report_errors(tools.add))
    note(f"Serving the Model Context Protocol on stdin and stdout: {', '.join(tools.describe_directions())}.")
    server.run()


class Tools:
    """The tools of the server; each returns an object that is sent as JSON. Any thread may call them.

    Args:
        translators: A translator for each pair of languages.
    """

    def __init__(self, translators: Sequence[Translator]) -> None:
        from ibidem.text import primary_language

        self._translators: dict[tuple[str, str], Translator] = {}
        self._memories: dict[str, tuple[LoadedMemory, Translator]] = {}
        for one in translators:
            tokens = one.model.tokens
            if not tokens.source_language or not tokens.target_language:
                raise UsageError(
                    f"The model {one.model.name} does not name its languages: give --source-language and "
                    "--target-language."
                )
            pair = primary_language(tokens.source_language), primary_language(tokens.target_language)
            self._translators[pair] = one
            for loaded in one.loaded_memories:
                self._memories[loaded.memory.path.resolve().name] = (loaded, one)
        # Only one thread may translate.
        self._lock = threading.Lock()

    def describe_directions(self) -> list[str]:
        """Return the directions in words."""
        return [f"{source} to {target}" for source, target in self._translators]

    def directions(self) -> dict[str, Any]:
        """List the directions of translation (language codes), and the memories with their numbers of pairs."""
        memories = []
        for name, (loaded, translator) in self._memories.items():
            source, target = self._pair_of(translator)
            pairs = loaded.memory.active_pairs
            memories.append({"name": name, "source_language": source, "target_language": target, "pairs": pairs})
        directions = [{"source_language": source, "target_language": target} for source, target in self._translators]
        return {"directions": directions, "memories": memories}

    def translate(self, text: str, source_language: str = "", target_language: str = "") -> dict[str, Any]:
        """Translate a text of any number of sentences and lines; line breaks are kept.

        The languages are codes such as "de" and "en"; they may be left out if the server has only one direction. The
        warnings name parts of the translation that should be checked.
        """
        from ibidem.retrieve import noted_missing

        translator = self._find_translator(source_language, target_language)
        _check_size(text)
        warnings: list[str] = []
        with self._lock, noted_missing() as missing:
            (translation,) = translator.translate([text], warn=lambda _, message: warnings.append(message))
        warnings += [f"shard {number} of a memory did not answer in time" for number in sorted(missing)]
        source, target = self._pair_of(translator)
        return {
            "translation": translation,
            "source_language": source,
            "target_language": target,
            "warnings": warnings,
        }

    def explain(self, text: str, source_language: str = "", target_language: str = "") -> dict[str, Any]:
        """Translate a text, and name for each word the approved translations that it was taken from.

        `memory_share` is the part of the word's probability that comes from the memories, from 0 to 1.
        """
        translator = self._find_translator(source_language, target_language)
        _check_size(text)
        with self._lock:
            (explanation,) = translator.explain([text])
        return {"translation": explanation.translation, "words": [_describe(word) for word in explanation.words]}

    def search(self, query: str, memory: str = "", limit: int = 10) -> dict[str, Any]:
        """Find approved translations that contain a text, in either language; upper and lower case are alike.

        `memory` is the name of one memory; without it all are searched.
        """
        from ibidem.memory import search_pairs

        most = max(1, min(limit, _MOST_FOUND))
        found: list[dict[str, Any]] = []
        for name in [self._check_memory(memory)] if memory else list(self._memories):
            pinned = self._memories[name][0].memory.pinned()
            matching = search_pairs(pinned, query, mode="phrase", limit=most - len(found)).pairs
            found += [
                {"memory": name, "id": pair.id, "source": pair.source, "target": pair.target} for pair in matching
            ]
        return {"pairs": found}

    def add(self, source: str, target: str, memory: str = "") -> dict[str, Any]:
        """Add an approved translation to a memory; the next translation uses it.

        Other translations of exactly the same source are replaced. `memory` may be left out if there is only one. Add
        only what a person has approved.
        """
        from ibidem.learn import MemoryWriter

        if not memory and len(self._memories) != 1:
            names = ", ".join(self._memories) or "none: start the server with -m FOLDER"
            raise UsageError(f"Name the memory; there are: {names}.")
        name = self._check_memory(memory or next(iter(self._memories)))
        loaded, translator = self._memories[name]
        with self._lock:
            writer = MemoryWriter(loaded.memory, translator.model)
            written = writer.correct([(source, target)], origin=_ORIGIN)
            before = writer.memory.generation
            if writer.maintain().generation != before:
                loaded.reload()
        return {
            "memory": name,
            "added": [one.id for one in written if one.new],
            "replaced": [pair.id for one in written for pair in one.replaced],
        }

    def _check_memory(self, name: str) -> str:
        if name not in self._memories:
            raise UsageError(f"There is no memory {name[:40]}; there are: {', '.join(self._memories) or 'none'}.")
        return name

    def _pair_of(self, translator: Translator) -> tuple[str, str]:
        return next(pair for pair, one in self._translators.items() if one is translator)

    def _find_translator(self, source: str, target: str) -> Translator:
        from ibidem.text import same_language

        found = [
            one
            for (own_source, own_target), one in self._translators.items()
            if (not source or same_language(source, own_source)) and (not target or same_language(target, own_target))
        ]
        if len(found) == 1:
            return found[0]
        known = ", ".join(self.describe_directions())
        problem = "Name source_language and target_language" if found else "These languages are not available"
        raise UsageError(f"{problem}; the directions are: {known}.")


def _check_size(text: str) -> None:
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(f"The text has {len(text):,} characters, more than {_MAX_CHARACTERS:,}: send it in parts.")


def _describe(word: Word) -> dict[str, Any]:
    """Describe a word of a translation with the pairs that agree with it, the heaviest first."""
    neighbours = sorted(
        (neighbour for token in word.tokens for neighbour in token.neighbours if neighbour.agrees),
        key=lambda neighbour: -neighbour.weight,
    )
    pairs = {(one.pair.memory, one.pair.id): one.pair for one in neighbours}
    return {
        "text": word.text,
        "memory_share": round(word.memory_share, 3),
        "summary": word.summary,
        "pairs": [
            {"id": pair.id, "source": pair.source, "target": pair.target}
            for pair in islice(pairs.values(), _MOST_CITED)
        ],
    }
