"""One server with two directions: requests, memories, imports, documents and glossaries by their languages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.errors import UsageError
from ibidem.glossary import Glossary
from ibidem.model import load_model
from ibidem.serve import Limits, ServeSettings, make_service, running
from ibidem.serve.engine import Engine
from ibidem.serve.request import choose_pair

from .conftest import Client, make_translator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.decode import Translator
    from ibidem.memory import Memory

GERMAN, ENGLISH = "Die Datei wurde gespeichert.", "The file has been saved."
TMX = """<tmx version="1.4"><header srclang="de"/><body><tu>
<tuv xml:lang="de"><seg>Hilfe</seg></tuv><tuv xml:lang="en"><seg>Help</seg></tuv></tu></body></tmx>"""
FRENCH_TMX = TMX.replace('xml:lang="de"', 'xml:lang="fr"')


@pytest.fixture(scope="module")
def both(
    tiny: Any, reverse_folder: Path, tmp_path_factory: pytest.TempPathFactory, memory: Memory
) -> tuple[Translator, Translator]:
    """A translator from German with the memory of all sentences, and one from English with an empty memory."""
    from ibidem.learn import create_memory

    english = load_model(reverse_folder, device="cpu")
    folder = tmp_path_factory.mktemp("memories") / "umgekehrt"
    create_memory(folder, english)
    return make_translator(tiny, memory), make_translator(english, folder)


@pytest.fixture(scope="module")
def server(both: tuple[Translator, Translator], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = ServeSettings(Limits(rate=1e6, burst=100_000), glossaries=tmp_path_factory.mktemp("glossaries"))
    with running(make_service(both, settings)) as url:
        yield Client(url)


def test_languages_are_pairs(server: Client) -> None:
    assert server.get("/languages").json == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    for kind in ("source", "target"):
        assert [one["language"] for one in server.get(f"/v2/languages?type={kind}").json] in (
            ["DE", "EN"],
            ["EN", "DE"],
        )
    pairs = server.get("/v2/glossary-language-pairs").json["supported_languages"]
    assert [(one["source_lang"], one["target_lang"]) for one in pairs] == [("de", "en"), ("en", "de")]
    assert [one["id"] for one in server.get("/v1/models").json["data"]] == ["ibidem-de-en", "ibidem-en-de"]
    memories = server.get("/memories").json["memories"]
    assert [(one["name"], one["source"], one["target"]) for one in memories] == [
        ("sentences", "de", "en"),
        ("umgekehrt", "en", "de"),
    ]


def test_requests_go_to_their_model(server: Client, both: tuple[Translator, Translator]) -> None:
    german, english = (one.translate([text])[0] for one, text in zip(both, (GERMAN, ENGLISH), strict=True))
    assert german != english
    for fields, expected, source in (
        ({"q": GERMAN, "source": "de", "target": "en"}, german, None),
        ({"q": ENGLISH, "source": "en", "target": "de"}, english, None),
        ({"q": ENGLISH, "target": "de"}, english, "en"),
        ({"q": GERMAN}, german, "de"),
        ({"q": ENGLISH}, english, "en"),
    ):
        found = server.post("/translate", fields).json
        assert found["translatedText"] == expected, fields
        assert found.get("detectedLanguage", {}).get("language") == source
    deepl = server.post("/v2/translate", {"text": [ENGLISH], "target_lang": "DE"}).json["translations"][0]
    assert (deepl["text"], deepl["detected_source_language"]) == (english, "EN")
    refused = server.post("/translate", {"q": "x", "source": "fr", "target": "en"})
    assert refused.status == 400
    assert "from de to en; from en to de" in refused.json["error"]


def test_a_memory_of_the_other_direction_is_refused(server: Client) -> None:
    fields = {"q": GERMAN, "source": "de", "target": "en", "memories": ["umgekehrt"]}
    refused = server.post("/translate", fields)
    assert refused.status == 400
    assert refused.json["error"] == "The memory umgekehrt is for en to de, and the request for de to en."


def test_suggestions_and_imports_learn_the_direction_of_their_memory(server: Client) -> None:
    pair = {"q": ENGLISH, "s": "Gespeichert.", "source": "en", "target": "de"}
    assert server.post("/suggest", pair).json == {"success": True}
    assert server.post("/translate", {"q": ENGLISH, "source": "en", "target": "de"}).json["translatedText"] == pair["s"]
    done = _import(server, TMX)
    assert done["state"] == "done"
    assert done["message"] == "read 1 pair, kept 1, from en to de"
    assert server.post("/translate", {"q": "Help", "source": "en", "target": "de"}).json["translatedText"] == "Hilfe"
    failed = _import(server, FRENCH_TMX)
    assert failed["state"] == "failed"
    assert "no unit has both en and de; the languages of the file are: fr, en" in failed["message"]


def _import(server: Client, content: str) -> dict[str, Any]:
    job = server.send("POST", "/memories/umgekehrt/import?file=x.tmx", content.encode()).json
    deadline = time.monotonic() + 30
    while (found := server.get(f"/jobs/{job['id']}").json)["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return dict(found)


def test_documents_and_glossaries_have_a_direction(server: Client, both: tuple[Translator, Translator]) -> None:
    sent = server.send("POST", "/documents?file=a.txt&source=en&target=de&memories=none", b"Open the window")
    id = sent.json["id"]
    deadline = time.monotonic() + 30
    while server.get(f"/documents/{id}").json["state"] in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    expected = make_translator(both[1].model, None).translate(["Open the window"])
    assert [server.get(f"/documents/{id}/file").body.decode()] == expected
    terms = {"name": "g", "source_lang": "EN", "target_lang": "DE", "entries": "window\tFenster"}
    glossary = server.post("/v2/glossaries", terms).json["glossary_id"]
    fields = {"q": "Open the window", "source": "en", "target": "de", "glossary": glossary}
    assert "Fenster" in server.post("/translate", fields).json["translatedText"]
    refused = server.post("/translate", {**fields, "source": "de", "target": "en"})
    assert "not for de to en" in refused.json["error"]
    for query, pair in (("&source=en&target=de", ["en", "de"]), ("&target=de", ["en", "de"]), ("", ["de", "en"])):
        made = server.send("POST", f"/glossaries/import?file=t.csv{query}", b"window,Fenster\n").json
        assert [made["source"], made["target"]] == pair, query
    assert server.send("POST", "/glossaries/import?file=t.csv&target=fr", b"window,Fenster\n").status == 400


def test_weblate_form_is_answered_by_the_model(server: Client, both: tuple[Translator, Translator]) -> None:
    """With both directions, the test translation of Weblate is a real one."""
    found = server.post("/translate", {"q": ["test"], "source": "en", "target": "de", "memories": []}).json
    assert found["translatedText"] == make_translator(both[1].model, None).translate(["test"])
    assert "not translated" not in str(found)


def test_conflicts_are_refused(both: tuple[Translator, Translator]) -> None:
    german, english = both
    with pytest.raises(UsageError, match="Two models translate from de to en"):
        Engine(german, german)
    assert Engine(english, german).pairs == (("en", "de"), ("de", "en"))


def test_the_glossary_of_the_operator_is_for_one_direction(tiny: Any, reverse_folder: Path) -> None:
    english = load_model(reverse_folder, device="cpu")
    translators = make_translator(tiny, None), make_translator(english, None)
    translators[1].glossary = Glossary("g", "en", "de", ())
    engine = Engine(*translators)
    assert engine.glossary_pair == ("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "detected", "expected"),
    [
        ("auto", "de", "de", ("en", "de")),
        (None, None, "en", ("en", "de")),
        (None, None, "fr", ("de", "en")),
        (None, "", None, ("de", "en")),
        ("auto", "fr", "en", ("en", "fr")),
        ("EN-us", "de_AT", None, ("en", "de")),
    ],
)
def test_pairs_are_chosen_by_what_is_known(source: Any, target: Any, detected: Any, expected: Any) -> None:
    pairs = [("de", "en"), ("en", "de"), ("en", "fr")]
    assert choose_pair(pairs, source, target, lambda: detected) == expected
