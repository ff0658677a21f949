"""Client packages that docs/clients.md lists and no other test covers: deep-translator, and options of deepl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.serve import ServeSettings

from .conftest import TEXT, Client, served

if TYPE_CHECKING:
    from ibidem.decode import Translator

TEXTS = ["Datei öffnen", "Die Datei wurde gespeichert."]


@pytest.fixture(scope="module")
def deepl(client: Client) -> Any:
    module = pytest.importorskip("deepl")
    module.http_client.max_network_retries = 0
    return module.DeepLClient("any key", server_url=client.url)


def test_deep_translator_sends_query_parameters(client: Client, translator: Translator) -> None:
    module = pytest.importorskip("deep_translator")
    service = module.LibreTranslator(source="de", target="en", custom_url=f"{client.url}/", api_key="any")
    assert service.translate(TEXTS[1]) == translator.translate(TEXTS[1:])[0]
    assert service.translate_batch(TEXTS) == translator.translate(TEXTS)


def test_query_parameters_have_the_limits_and_keys_of_a_body(client: Client, translator: Translator) -> None:
    assert client.send("POST", "/translate?q=" + "a" * 3_000).status == 400
    assert client.send("POST", "/translate?q=a&q=b&source=de&target=en").status == 200
    assert client.send("POST", "/translate").json == {"error": "Invalid request: missing q parameter"}
    with served(translator, ServeSettings(keys_required=True), "secret") as (own, _):
        assert own.send("POST", "/translate?q=Datei").status == 403
        assert own.send("POST", "/translate?q=Datei&api_key=secret").status == 200


def test_deepl_translates_documents(deepl: Any, translator: Translator, tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text(TEXTS[0], encoding="utf-8")
    deepl.translate_document_from_filepath(tmp_path / "a.txt", tmp_path / "b.txt", target_lang="EN-US")
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == translator.translate(TEXTS[:1])[0]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"context": "A dialog"}, "context"),
        ({"custom_instructions": ["Be brief"]}, "custom_instructions"),
        ({"formality": "less"}, "formality"),
        ({"style_rule": "3b1e"}, "style_id"),
        ({"tag_handling": "xml", "splitting_tags": ["p"]}, "splitting_tags"),
        ({"tag_handling": "xml", "non_splitting_tags": ["p"]}, "non_splitting_tags"),
        ({"tag_handling": "xml", "outline_detection": False}, "outline_detection"),
        ({"ignore_tags": ["x"]}, "ignore_tags"),
    ],
)
def test_deepl_options_that_would_be_ignored_are_refused(deepl: Any, options: dict[str, Any], name: str) -> None:
    module = pytest.importorskip("deepl")
    with pytest.raises(module.DeepLException, match=name):
        deepl.translate_text(TEXTS[0], target_lang="EN-US", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"formality": "prefer_more"},
        {"preserve_formatting": True},
        {"preserve_formatting": False},
        {"model_type": "quality_optimized"},
        {"context": ""},
    ],
)
def test_deepl_options_without_effect(deepl: Any, translator: Translator, options: dict[str, Any]) -> None:
    found = deepl.translate_text(TEXTS[1], target_lang="EN-US", **options)
    assert found.text == translator.translate(TEXTS[1:])[0]


def test_deepl_keeps_ignored_elements(deepl: Any) -> None:
    text = "<p>Die <keep>Datei</keep> wurde gespeichert.</p>"
    found = deepl.translate_text(text, target_lang="EN-US", tag_handling="xml", ignore_tags=["keep"]).text
    assert "<keep>Datei</keep>" in found
    assert "<keep>Datei</keep>" not in deepl.translate_text(text, target_lang="EN-US", tag_handling="xml").text


def test_billed_characters_are_shown_if_requested(client: Client) -> None:
    fields = {"text": TEXTS, "target_lang": "EN"}
    assert "billed_characters" not in client.post("/v2/translate", fields).json["translations"][0]
    found = client.form("/v2/translate", {**fields, "show_billed_characters": "1"}).json["translations"]
    assert [one["billed_characters"] for one in found] == [len(text) for text in TEXTS]


def test_deepl_write_is_refused(deepl: Any) -> None:
    module = pytest.importorskip("deepl")
    with pytest.raises(module.DeepLException, match="only translates"):
        deepl.rephrase_text("Hello", target_lang="EN-US")


def test_languages_have_a_type(client: Client) -> None:
    assert [one["language"] for one in client.get("/v2/languages?type=source").json] == ["DE"]
    assert client.get("/v2/languages?type=both").status == 400


def test_libretranslate_files(client: Client, translator: Translator) -> None:
    """The form that LibreTranslate's own page sends."""
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nDatei \xc3\xb6ffnen\r\n'
        b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nauto\r\n'
        b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nen\r\n--x--\r\n'
    )
    found = client.send("POST", "/translate_file", body, Content_Type="multipart/form-data; boundary=x").json
    path = found["translatedFileUrl"].removeprefix(client.url)
    assert client.get(path).body.decode() == translator.translate(TEXTS[:1])[0]
    settings = client.get("/frontend/settings").json
    assert settings["filesTranslation"] is True
    assert ".docx" in settings["supportedFilesFormat"]
    assert client.post("/translate", {**TEXT, "format": "markdown"}).status == 400
