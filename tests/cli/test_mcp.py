"""`ibidem mcp` as a process, with the official client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("mcp")

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


def test_the_official_client_uses_every_tool(tiny_folder: Path, tmp_path: Path) -> None:
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
