"""Changes of memories while the server translates."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve.memory_writer import file_name

from .conftest import GERMAN, WANTED

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.serve import Service

    from .conftest import Client


@pytest.mark.parametrize("origin", ["it.tmx", "/srv/secret/it.tmx", "C:\\Users\\me\\it.tmx", "../it.tmx"])
def test_file_name_has_no_folder(origin: str) -> None:
    assert file_name(origin) == "it.tmx"


def translate(client: Client, text: str = GERMAN, **more: Any) -> Any:
    return client.post("/translate", {"q": text, "source": "de", "target": "en", **more}).json["translatedText"]


def cited(client: Client, text: str) -> set[int]:
    """Return the ids of the pairs that a translation cites."""
    found = client.post("/translate", {"q": text, "explain": True}).json
    return {pair["id"] for pair in found["explanation"]["pairs"]}


def test_pairs_of_another_program_are_used(writer: Client, tiny: Any, folder: Path) -> None:
    from ibidem.learn import MemoryWriter

    assert translate(writer) != WANTED
    MemoryWriter(folder, tiny).add_pair(GERMAN, WANTED)
    assert translate(writer) == WANTED
    assert writer.get("/memories").json["memories"][0]["pairs"] == Memory.open(folder).active_pairs


def test_a_memory_locked_by_another_program(writer: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Memory.writing
    monkeypatch.setattr(Memory, "writing", lambda memory, _: real(memory, 0.05))
    with Memory.open(folder).edit():
        refused = writer.post("/suggest", {"q": GERMAN, "s": WANTED})
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert translate(writer) != WANTED


def test_learning_during_translations(writer: Client, folder: Path) -> None:
    """Every translation succeeds, and uses all pairs that were added before its request."""
    stop = threading.Event()
    wrong: list[Any] = []

    def send_requests() -> None:
        while not stop.is_set():
            answer = writer.post("/translate", {"q": "Datei öffnen", "explain": True})
            if answer.status != 200:
                wrong.append(answer)

    threads = [threading.Thread(target=send_requests) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(12):
        german = f"Satz {number} der Reihe"
        (id,) = writer.post("/memories/mine/pairs", {"pairs": [{"source": german, "target": WANTED}]}).json["added"]
        assert id in cited(writer, german)
        if number % 2:
            writer.send("DELETE", "/memories/mine/pairs", json.dumps({"ids": [id]}).encode())
            assert id not in cited(writer, german)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert Memory.open(folder).verify() == []


def test_maintenance_in_the_background(
    writer: Client, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is sealed while the server runs, and translations still use its pairs."""
    from ibidem.learn import maintenance

    monkeypatch.setattr(maintenance, "SEAL_BYTES", 1)
    generation = Memory.open(folder).generation
    writer.post("/suggest", {"q": GERMAN, "s": WANTED})
    deadline = time.monotonic() + 30
    while Memory.open(folder).generation == generation:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert translate(writer) == WANTED
    assert service.writers.list_memories()[0].pairs == Memory.open(folder).active_pairs
