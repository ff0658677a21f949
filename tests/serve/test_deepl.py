"""DeepL's API, with its own Python client and with plain requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .conftest import Client, make_translator

if TYPE_CHECKING:
    from ibidem.decode import Translator
    from ibidem.memory import Memory

TEXTS = ["Datei öffnen", "Die Datei wurde gespeichert."]


@pytest.fixture
def deepl(client: Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("deepl")
    monkeypatch.setattr(module.http_client, "max_network_retries", 0)
    return module.DeepLClient("any key", server_url=client.url)


def test_official_client_translates(deepl: Any, translator: Translator) -> None:
    expected = translator.translate(TEXTS)
    found = deepl.translate_text(TEXTS, target_lang="EN-US")
    assert [one.text for one in found] == expected
    assert {one.detected_source_lang for one in found} == {"DE"}
    assert [one.billed_characters for one in found] == [len(text) for text in TEXTS]
    assert deepl.translate_text(TEXTS[0], source_lang="DE", target_lang="EN-GB").text == expected[0]


def test_official_client_splits_sentences(deepl: Any, translator: Translator) -> None:
    module = pytest.importorskip("deepl")
    text = f"{TEXTS[1]}  {TEXTS[0]}\n{TEXTS[1]}"
    two, one = translator.translate([TEXTS[1], TEXTS[0]])
    kinds = module.SplitSentences
    assert deepl.translate_text(text, target_lang="EN-US").text == f"{two}  {one}\n{two}"
    assert deepl.translate_text(text, target_lang="EN-US", split_sentences=kinds.ALL).text == f"{two}  {one}\n{two}"
    joined, whole = (
        deepl.translate_text(text, target_lang="EN-US", split_sentences=kind).text
        for kind in (kinds.NO_NEWLINES, kinds.OFF)
    )
    assert joined.startswith(f"{two}  ")
    assert "\n" not in joined + whole
    html = deepl.translate_text(f"<p>{TEXTS[0]}\n{TEXTS[0]}</p>", target_lang="EN-US", tag_handling="html").text
    assert "\n" not in html, "in HTML a line break is a space"


def test_official_client_lists_languages_and_memories(deepl: Any, memory: Memory) -> None:
    assert [language.code for language in deepl.get_source_languages()] == ["DE"]
    assert [language.code for language in deepl.get_target_languages()] == ["EN"]
    assert not deepl.get_usage().any_limit_reached
    listed = deepl.list_translation_memories()[0]
    assert (listed.translation_memory_id, listed.segment_count) == (memory.path.name, memory.pairs)


def test_official_client_selects_a_memory(deepl: Any, translator: Translator, tiny: Any, memory: Memory) -> None:
    with_memory = deepl.translate_text(TEXTS[1], target_lang="EN-US", translation_memory=memory.path.name)
    without = deepl.translate_text(TEXTS[1], target_lang="EN-US", translation_memory="none")
    assert with_memory.text == translator.translate(TEXTS[1:])[0]
    assert without.text == make_translator(tiny, None).translate(TEXTS[1:])[0]


def test_official_client_raises_the_error_message(deepl: Any) -> None:
    module = pytest.importorskip("deepl")
    for options, message in (
        ({"target_lang": "FR"}, "FR is not supported"),
        ({"target_lang": "EN-US", "source_lang": "FR"}, "FR is not supported"),
        ({"target_lang": "EN-US", "translation_memory": "other"}, "no memory other"),
        ({"target_lang": "EN-US", "formality": "more"}, "formality"),
        ({"target_lang": "EN-US", "source_lang": "DE", "glossary": "g"}, "no glossary of this id"),
    ):
        with pytest.raises(module.DeepLException, match=message):
            deepl.translate_text("Datei", **options)


def test_forms_and_errors(client: Client, translator: Translator) -> None:
    found = client.form("/v2/translate", {"text": TEXTS, "target_lang": "EN"})
    assert [one["text"] for one in found.json["translations"]] == translator.translate(TEXTS)
    assert client.form("/v2/translate", {"text": TEXTS[0], "target_lang": "EN"}).status == 200
    refused = client.post("/v2/translate", {"text": TEXTS})
    assert (refused.status, refused.json) == (400, {"message": "Invalid request: missing target_lang parameter"})
    assert set(client.get("/v2/nothing").json) == {"message"}


def test_confidence_on_request(client: Client) -> None:
    content = {"text": ["Die Datei fehlt."], "target_lang": "EN"}
    assert "confidence" not in client.post("/v2/translate", content).json["translations"][0]
    (found,) = client.post("/v2/translate", {**content, "show_confidence": True}).json["translations"]
    assert 0 <= found["confidence"] < 1
