"""LibreTranslate's API, with its own Python client and with plain requests."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import translate_and_assess
from ibidem.serve.schemas import Citations

from .conftest import Client, make_translator

if TYPE_CHECKING:
    from ibidem.decode import Translator
    from ibidem.memory import Memory

PAIR = {"source": "de", "target": "en"}
TEXTS = ["Datei öffnen", "Die Datei wurde gespeichert.", "Abbrechen"]


def test_official_client_translates_lists_and_detects(client: Client, translator: Translator) -> None:
    libretranslatepy = pytest.importorskip("libretranslatepy")
    api = libretranslatepy.LibreTranslateAPI(client.url)
    assert api.translate(TEXTS[0], "de", "en") == translator.translate(TEXTS[:1])[0]
    assert api.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    assert api.detect("Guten Tag")[0]["language"] == "de"


def test_server_and_library_return_the_same(client: Client, translator: Translator) -> None:
    expected = translator.translate(TEXTS)
    assert client.post("/translate", {"q": TEXTS, **PAIR}).json["translatedText"] == expected
    assert client.post("/translate", {"q": TEXTS[1], **PAIR}).json["translatedText"] == expected[1]
    assert client.form("/translate", {"q": TEXTS[1], **PAIR}).json["translatedText"] == expected[1]


def test_suspicious_sentences_are_in_the_response(client: Client, translator: Translator) -> None:
    """The tiny model repeats syllables, which is reported with the place in the translation."""
    text = f"{TEXTS[2]}\n\n{TEXTS[0]}"
    found: list[tuple[int, str]] = []
    translation = translator.translate([text], warn=lambda *warning: found.append(warning))[0]
    assert found
    for query in ({}, {"explain": True}):
        response = client.post("/translate", {"q": text, **PAIR, **query}).json
        assert response["translatedText"] == translation
        warnings = response["warnings"]
        assert [warning["message"] for warning in warnings] == [message for _, message in found]
        assert all(translation[one["start"] : one["end"]] in translation.split("\n\n") for one in warnings)
    both = client.post("/translate", {"q": ["1", text], **PAIR}).json["warnings"]
    assert both[1] == warnings
    blank = client.post("/translate", {"q": " ", **PAIR}).json
    assert blank == {"translatedText": " ", "segments": []}


@pytest.mark.parametrize(
    ("option", "pieces", "template"),
    [
        (None, ["Datei öffnen.", "Datei", "schließen"], "{}  {}\n {} "),
        ("1", ["Datei öffnen.", "Datei", "schließen"], "{}  {}\n {} "),
        (1, ["Datei öffnen.", "Datei", "schließen"], "{}  {}\n {} "),
        ("nonewlines", ["Datei öffnen.", "Datei schließen"], "{}  {} "),
        (0, ["Datei öffnen. Datei schließen"], "{} "),
    ],
)
def test_sentences_are_split_as_the_request_names(
    client: Client, tiny: Any, memory: Memory, option: Any, pieces: list[str], template: str
) -> None:
    whole = make_translator(tiny, memory)
    whole.splitting = "off"
    text, expected = template.format(*pieces), template.format(*whole.translate(pieces))
    if option in ("nonewlines", 0):
        text = text.replace("Datei schließen", "Datei\n schließen")
    given = {} if option is None else {"split_sentences": option}
    assert client.post("/translate", {"q": text, **PAIR, **given}).json["translatedText"] == expected
    deepl = client.post("/v2/translate", {"text": [text], "target_lang": "EN", **given}).json
    assert deepl["translations"][0]["text"] == expected
    assert client.post("/translate", {"q": text, **PAIR, "split_sentences": "2"}).status == 400


def test_all_body_types(client: Client, translator: Translator) -> None:
    expected = translator.translate(TEXTS[:1])[0]
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"q": TEXTS[0], **PAIR}.items()
    )
    sent = client.send(
        "POST", "/translate", f"{parts}--b--\r\n".encode(), Content_Type="multipart/form-data; boundary=b"
    )
    assert sent.json["translatedText"] == expected
    address = "/translate?source=de-DE&target=EN&q=Datei%20%C3%B6ffnen"
    assert client.get(address).json == {"translatedText": expected, "translation": expected}
    assert client.get(address.replace("q=", "text=")).json["translation"] == expected
    wrong = client.form("/translate?source=fr", {"q": TEXTS[0], "target": "en"})
    assert "fr is not supported" in wrong.json["error"], "a form may have a part of its fields in the query"


def test_options_of_get_are_honoured_or_refused(client: Client) -> None:
    address = "/translate?source=de&target=en&q=%3Cb%3EDatei%3C/b%3E"
    body = {"q": "<b>Datei</b>", **PAIR, "format": "html", "memories": []}
    expected = client.post("/translate", body).json["translatedText"]
    assert client.get(f"{address}&format=html&memories=none").json["translatedText"] == expected
    for wrong in ("format=pdf", "alternatives=2", "explain=true", "matches=1", "glossary=x", "q=b", "q=%ff"):
        assert client.get(f"{address}&{wrong}").status in (400, 404), wrong


def test_forms_that_are_not_utf8_are_refused(client: Client) -> None:
    """A text in Latin-1 would be translated with replacement characters."""
    kind = "application/x-www-form-urlencoded"
    assert client.send("POST", "/translate", b"q=gel%F6scht&target=en", Content_Type=kind).status == 400
    assert client.send("POST", "/translate?q=gel%F6scht&target=en").status == 400


def test_requests_of_weblate_and_omegat(client: Client, translator: Translator) -> None:
    """Weblate sends JSON with a list and an empty key, OmegaT's plugins send a form or a query."""
    expected = translator.translate(TEXTS)
    weblate = {"api_key": "", "q": TEXTS, **PAIR}
    assert client.post("/translate", weblate).json["translatedText"] == expected
    assert {language["code"] for language in client.get("/languages").json} == {"de", "en"}
    assert client.form("/translate?api_key=any", {"q": TEXTS[0], **PAIR}).json["translatedText"] == expected[0]
    fake = "/translate?source=de-DE&target=en-US&text=Abbrechen"
    assert client.get(fake).json["translation"] == expected[2]


def test_lines_and_indentation_are_kept(client: Client, translator: Translator) -> None:
    one, two = translator.translate(TEXTS[:2])
    text = f"\n  {TEXTS[0]}\r\n\r\n{TEXTS[1]}\t\n"
    assert client.post("/translate", {"q": text, **PAIR}).json["translatedText"] == f"\n  {one}\r\n\r\n{two}\t\n"
    assert client.post("/translate", {"q": [" ", ""], **PAIR}).json["translatedText"] == [" ", ""]


def test_default_languages(client: Client) -> None:
    found = client.post("/translate", {"q": "Datei"}).json
    assert found["detectedLanguage"]["language"] == "de"
    assert client.post("/translate", {"q": "1 2 3", "source": "auto"}).json["detectedLanguage"]["confidence"] == 0
    for wrong in ({"source": "fr", "target": "en"}, {"source": "de", "target": "de"}):
        refused = client.post("/translate", {"q": "Datei", **wrong})
        assert refused.status == 400
        assert "is not supported" in refused.json["error"]


def test_alternatives(client: Client, translator: Translator) -> None:
    expected = [[text for text, _ in found] for found in translator.alternatives(TEXTS[:2], 3)]
    found = client.post("/translate", {"q": TEXTS[:2], "alternatives": 2, **PAIR}).json
    assert found["translatedText"] == [best for best, *_ in expected]
    assert found["alternatives"] == [list(dict.fromkeys(others)) for _, *others in expected]
    lines = client.post("/translate", {"q": "\n".join(TEXTS[:2]), "alternatives": 2, **PAIR}).json
    assert lines["alternatives"][0] == "\n".join(others[0] for _, *others in expected)
    assert client.post("/translate", {"q": "x", "alternatives": 4}).status == 400


def test_memories_by_name(client: Client, translator: Translator, tiny: Any, memory: Memory) -> None:
    name = memory.path.name
    bare = make_translator(tiny, None).translate(TEXTS)
    assert bare != translator.translate(TEXTS), "the memory makes a difference"
    for none in ([], "none", ["none"], {}):
        assert client.post("/translate", {"q": TEXTS, "memories": none, **PAIR}).json["translatedText"] == bare
    assert client.form("/translate", {"q": TEXTS[0], "memories": "none"}).json["translatedText"] == bare[0]
    for all_of_them in ([name], name, f"{name}:2", {name: 0.5}):
        found = client.post("/translate", {"q": TEXTS, "memories": all_of_them, **PAIR})
        assert found.json["translatedText"] == translator.translate(TEXTS)
    for wrong in ("../memory", str(memory.path), "other", f"{name}:0", f"{name}:nan", {name: -1}, f"{name}:x"):
        refused = client.post("/translate", {"q": TEXTS, "memories": wrong, **PAIR})
        assert refused.status == 400, wrong
        assert str(memory.path.parent) not in refused.json["error"] or wrong == str(memory.path)


def test_explanation_probabilities_add_up(client: Client, translator: Translator, memory: Memory) -> None:
    text = "\n".join(TEXTS)
    found = client.post("/translate", {"q": text, "explain": True, **PAIR}).json
    citations = Citations.model_validate(found["explanation"])
    assert citations.translation == found["translatedText"]
    assert [word.text for word in citations.words if word.text] == found["translatedText"].split()
    for word in citations.words:
        assert citations.translation[word.start : word.end] == word.text
        for token in word.tokens:
            agreeing = sum(neighbour.weight for neighbour in token.neighbours if neighbour.agrees)
            assert math.isclose(token.probability, token.base_weight * token.base_probability + agreeing, rel_tol=1e-6)
    assert len(citations.pairs) > 3
    expected = translator.explain(TEXTS)
    assert len(citations.pairs) == len(
        {(n.pair.memory, n.pair.id) for line in expected for token in line.tokens for n in token.neighbours}
    )
    stored = {pair.target for pair in memory.sentences()}
    assert {pair.target for pair in citations.pairs} <= stored
    assert {pair.memory for pair in citations.pairs} == {memory.path.name}
    assert {pair.origin for pair in citations.pairs} == {"corpus.tsv"}
    assert str(memory.path) not in json.dumps(found)


def test_an_explanation_for_each_text(client: Client) -> None:
    found = client.post("/translate", {"q": [*TEXTS, ""], "explain": True, "memories": [], **PAIR}).json
    assert [one["translation"] for one in found["explanation"]] == found["translatedText"]
    assert found["explanation"][-1] == {"translation": "", "words": [], "pairs": [], "terms": []}
    assert all(word["summary"].startswith("from the base model") for word in found["explanation"][0]["words"])


def test_settings_and_health(client: Client) -> None:
    assert client.get("/health").json == {"status": "ok"}
    found = client.get("/frontend/settings").json
    assert found["charLimit"] == 2000
    assert found["keyRequired"] is False
    assert found["language"]["source"] == {"code": "de", "name": "German"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "missing q"),
        ({"q": 3}, "q"),
        ({"q": ["a", None]}, "q"),
        ({"q": "a", "format": "pdf"}, "format"),
        ({"q": "a", "alternatives": -1}, "alternatives"),
        ({"q": "a", "explain": "perhaps"}, "explain"),
        ({"q": "a" * 2001}, "text limit (2000)"),
        ({"q": ["a"] * 9}, "batch limit (8)"),
        ({"q": "a\n" * 41}, "41 lines"),
        ({"q": "a", "memories": ["m"] * 17}, "at most 16"),
    ],
)
def test_invalid_fields_are_refused(client: Client, content: dict[str, Any], message: str) -> None:
    refused = client.post("/translate", content)
    assert refused.status == 400
    assert message in refused.json["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"q": ' + b"[" * 5000,
        b'{"q": 1' + b"0" * 6000 + b"}",
        b"null",
    ],
)
def test_invalid_bodies_are_refused(client: Client, body: bytes) -> None:
    refused = client.send("POST", "/translate", body, Content_Type="application/json")
    assert refused.status == 400
    assert set(refused.json) == {"error"}


def test_unusual_texts_are_translated(client: Client) -> None:
    texts = ["a\u200db", "\u202egnol", "\x00", "😀" * 50, "x" * 1500, "\ufeff", "a\u2028b", "</s>", "<pad>"]
    for text in texts:
        body = json.dumps({"q": text, "explain": True, **PAIR}).encode()
        found = client.send("POST", "/translate", body, Content_Type="application/json")
        assert found.status == 200, text
        assert "\n" not in found.json["translatedText"]


def test_confidence_and_matches_of_sentences(client: Client, translator: Translator, memory: Memory) -> None:
    source = next(memory.sentences()).source
    text = f"{source}\n\nxyz. {source}"
    answer = client.post("/translate", {"q": text, "source": "de", "target": "en", "matches": 2}).json
    (expected,) = translate_and_assess(translator, [text], matches=2)
    assert answer["translatedText"] == expected.text
    assert answer["confidence"] == pytest.approx(expected.confidence, abs=1e-3)
    for segment, one in zip(answer["segments"], expected.segments, strict=True):
        places = ("start", "end", "source_start", "source_end")
        assert [segment[name] for name in places] == [getattr(one, name) for name in places]
        assert segment["confidence"] == pytest.approx(one.confidence, abs=1e-3)
        assert [(match["id"], match["percent"]) for match in segment["matches"]] == [
            (match.match.pair.id, match.match.percent) for match in one.matches
        ]
    best = answer["segments"][0]["matches"][0]
    assert (best["source"], best["percent"], best["origin"]) == (source, 100, "corpus.tsv")
    assert "/" not in best["memory"]
    listed = client.post("/translate", {"q": [source, ""], "source": "de", "target": "en"}).json
    assert [len(of_text) for of_text in listed["segments"]] == [len(expected.segments[:1]), 0]
    assert listed["confidence"][1] is None
    assert "matches" not in listed["segments"][0][0]
    base = {"q": source, "source": "de", "target": "en", "matches": 1, "memories": []}
    assert client.post("/translate", base).json["segments"][0]["matches"] == []


def test_sentences_below_the_least_confidence_are_empty(client: Client) -> None:
    content = {"q": "Die Datei fehlt.\nHallo", "source": "de", "target": "en", "min_confidence": 1}
    answer = client.post("/translate", content).json
    assert answer["translatedText"] == "\n"
    assert [segment["left_empty"] for segment in answer["segments"]] == [True, True]
    assert "warnings" not in answer


@pytest.mark.parametrize(
    "more",
    [
        {"matches": -1},
        {"matches": 21},
        {"min_confidence": 1.5},
        {"min_confidence": -0.5},
        {"min_confidence": "x"},
        {"format": "html", "matches": 1},
        {"format": "html", "min_confidence": 0.5},
    ],
)
def test_invalid_confidence_options_are_refused(client: Client, more: dict[str, Any]) -> None:
    answer = client.post("/translate", {"q": "Hallo", "source": "de", "target": "en", **more})
    assert answer.status == 400


def test_markup_has_no_segments(client: Client) -> None:
    content = {"q": "<p>Hallo</p>", "source": "de", "target": "en", "format": "html"}
    assert "segments" not in client.post("/translate", content).json
