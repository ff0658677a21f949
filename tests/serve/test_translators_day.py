"""A translator's day: a memory from a TMX file, a glossary, a document, corrections on the page, export, Weblate."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import pytest

from ibidem.combine import FixedCombiner
from ibidem.decode import SearchSettings, Translator
from ibidem.learn import extract
from ibidem.model import load_model
from ibidem.serve import make_service, running
from ibidem.text import Corpus

from .conftest import OPEN, Client

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from .browser import Page
from .test_documents import docx, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Sentence

PROCESS = Path(__file__).with_name("weblate_process.py")
NAME = "Firma"
TERM, TRANSLATION = "tenant", "Mandant"
KNOWN, NEW = "Repeat the last action", "The tenant was deleted."
CORRECTIONS = {"Discard all changes?": "Alles verwerfen?", "New folder": "Neues Verzeichnis"}


def write_tmx(sentences: list[Sentence]) -> bytes:
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{escape(one.english)}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{escape(one.german)}</seg></tuv></tu>'
        for one in sentences
    )
    return f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'.encode()


@pytest.fixture
def server(reverse_folder: Path, sentences: list[Sentence], tmp_path: Path) -> Iterator[Client]:
    """A server from English to German with a new memory from a TMX file."""
    file = tmp_path / "firma.tmx"
    file.write_bytes(write_tmx(sentences))
    model = load_model(reverse_folder, device="cpu")
    corpus = Corpus([file], source_language="en", target_language="de")
    memory = extract(model, corpus, tmp_path / NAME)
    search = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=60)
    translator = Translator(model, memory, combiner=FixedCombiner(2, 0.98, 0.1), settings=search, batch_size=8)
    with running(make_service(translator, replace(OPEN, glossaries=tmp_path / "glossaries"))) as url:
        yield Client(url)


def finish(client: Client, path: str, wanted: str = "done") -> Any:
    """Wait for the end of an import or of a document."""
    deadline = time.monotonic() + 60
    while (found := client.get(path).json)["state"] in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found["state"] == wanted, found
    return found


def export(client: Client, file: Path) -> dict[str, str]:
    """Return the targets of all sources of the memory, as a TMX file has them."""
    file.write_bytes(client.get(f"/memories/{NAME}/export?format=tmx").body)
    return {pair.source: pair.target for pair in Corpus([file], source_language="en", target_language="de")}


@pytest.mark.parametrize("weblate", ["requests", pytest.param("package", marks=pytest.mark.slow)])
def test_a_translators_day(
    weblate: str, server: Client, driver: Any, sentences: list[Sentence], tmp_path: Path
) -> None:
    python = os.environ.get("IBIDEM_WEBLATE_PYTHON")
    if weblate == "package" and not python:
        pytest.skip("IBIDEM_WEBLATE_PYTHON does not name an interpreter with weblate")
    german = {one.english: one.german for one in sentences}

    # A glossary from a CSV file.
    glossary = server.send("POST", "/glossaries/import?file=Haus.csv", f"en,de\n{TERM},{TRANSLATION}\n".encode()).json
    assert (glossary["source"], glossary["target"], glossary["terms"]) == ("en", "de", 1)

    # A document with memory and glossary.
    query = f"file=brief.docx&source=en&target=de&memories={NAME}&glossary={glossary['id']}"
    sent = server.send("POST", f"/documents?{query}", docx(KNOWN, NEW)).json
    finish(server, f"/documents/{sent['id']}")
    known, new = texts_of(server.get(f"/documents/{sent['id']}/file").body)
    assert known == german[KNOWN]
    assert TRANSLATION in new

    # Two corrections on the page.
    before = export(server, tmp_path / "before.tmx")
    assert before.items() <= german.items()
    assert before.keys() > CORRECTIONS.keys()
    page = Page(driver, server.url)
    for source, target in CORRECTIONS.items():
        page.paste(source)
        page["correct"].click()
        page["target"].clear()
        page["target"].send_keys(target)
        page["learn"].click()
        page.wait_for_translation(target)
    assert page.has_no_browser_errors()

    # The exported file has them in the place of what they replaced.
    assert export(server, tmp_path / "after.tmx") == {**before, **CORRECTIONS}

    # Weblate receives the corrected texts.
    texts = [*CORRECTIONS, KNOWN]
    wanted = [*CORRECTIONS.values(), german[KNOWN]]
    fields = {"api_key": "", "q": texts, "source": "en", "target": "de"}
    assert server.post("/translate", fields).json["translatedText"] == wanted
    if weblate == "package":
        command = [str(python), str(PROCESS), "--from", "en", "--to", "de", server.url, *texts]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment)
        assert done.returncode == 0, done.stderr[-2_000:]
        for name, found in json.loads(done.stdout.splitlines()[-1]).items():
            assert (found["saved"], found["translations"]) == (True, wanted), name
