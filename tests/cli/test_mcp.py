"""`ibidem mcp` as a process, with the official client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.cli.mcp import Tools
from ibidem.decode import Translator
from ibidem.errors import UsageError
from ibidem.learn import create_memory, maintenance
from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.model import BaseModel

COMBINER = ["--k", "2", "--weight", "0.98", "--temperature", "0.1"]
GERMAN, WANTED = "Der Mandant wurde gelöscht.", "Stop"


async def talk(arguments: list[str], calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[Any]]:
    """Start the command, and return the names of its tools and the result of each call (text of an error)."""
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "ibidem", "mcp", *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        results = []
        for name, fields in calls:
            answer = await session.call_tool(name, fields)
            text = "".join(part.text for part in answer.content)
            results.append(text if answer.is_error else json.loads(text))
        return names, results


@pytest.fixture
def tools(tiny: BaseModel, tmp_path: Path) -> Tools:
    """The tools over an empty memory."""
    return Tools([Translator(tiny, create_memory(tmp_path / "mine", tiny))])


def test_a_phrase_is_found_in_either_language(tools: Tools) -> None:
    for number in range(3):
        tools.add(f"Der Mandant {number} wurde gelöscht.", f"Tenant {number} was deleted.")
    assert [pair["id"] for pair in tools.search("1 WURDE GEL")["pairs"]] == [1]
    assert [pair["id"] for pair in tools.search("tenant", "mine", limit=2)["pairs"]] == [2, 1], "newest first"
    assert tools.search("deleted tenant")["pairs"] == []
    with pytest.raises(UsageError, match="query is empty"):
        tools.search(" ")


def test_the_journal_is_sealed_where_that_is_due(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.add(GERMAN, WANTED)
    assert Memory.open(tmp_path / "mine").tail.pairs == 1
    monkeypatch.setattr(maintenance, "SEAL_BYTES", 1)
    assert tools.add(GERMAN, "Halt")["replaced"] == [0]
    memory = Memory.open(tmp_path / "mine")
    assert (memory.pairs, memory.tail.pairs) == (1, 0)
    assert [pair["target"] for pair in tools.search("mandant")["pairs"]] == ["Halt"]


def test_the_official_client_uses_every_tool(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    folder = tmp_path / "mine"
    names, results = asyncio.run(
        talk(
            ["--model", str(tiny_folder), "--device", "cpu", "-m", str(folder), *COMBINER],
            [
                ("directions", {}),
                ("add", {"source": GERMAN, "target": WANTED}),
                ("translate", {"text": GERMAN, "target_language": "en"}),
                ("explain", {"text": GERMAN}),
                ("search", {"query": "MANDANT"}),
                ("translate", {"text": "Bonjour", "source_language": "fr"}),
                ("add", {"source": GERMAN, "target": "Halt", "memory": "other"}),
            ],
        )
    )
    assert names == ["directions", "translate", "explain", "search", "add"]
    directions, added, translated, explained, found, other_language, other_memory = results
    assert directions["directions"] == [{"source_language": "de", "target_language": "en"}]
    assert [one["name"] for one in directions["memories"]] == ["mine"]
    assert (added["memory"], len(added["added"]), added["replaced"]) == ("mine", 1, [])
    assert translated["translation"].startswith(WANTED), "the pair that was just added counts"
    assert explained["translation"] == translated["translation"]
    assert explained["words"][0]["pairs"][0]["source"] == GERMAN
    assert [pair["target"] for pair in found["pairs"]] == [WANTED]
    assert "the directions are: de to en" in other_language
    assert "There is no memory other" in other_memory
    assert [pair.target for pair in Memory.open(folder).sentences()] == [WANTED]
