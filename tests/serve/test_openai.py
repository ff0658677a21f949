"""OpenAI's API, with its own Python client and with plain requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .conftest import GERMAN, Client

if TYPE_CHECKING:
    from ibidem.decode import Translator

TEXTS = ["Datei öffnen", "Die Datei wurde gespeichert."]


@pytest.fixture(scope="module")
def openai(client: Client) -> Any:
    module = pytest.importorskip("openai")
    return module.OpenAI(api_key="any key", base_url=f"{client.url}/v1", max_retries=0)


def ask(openai: Any, content: Any, model: str = "ibidem-de-en", **options: Any) -> Any:
    messages = [
        {"role": "system", "content": "Translate from German to English. Reply with the translation only."},
        {"role": "user", "content": "Hallo"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": content},
    ]
    return openai.chat.completions.create(model=model, messages=messages, **options)


def test_official_client_translates_the_last_message(openai: Any, translator: Translator) -> None:
    text = f"{TEXTS[0]}\n\n{TEXTS[1]}"
    (expected,) = translator.translate([text])
    found = ask(openai, text, temperature=0, max_tokens=5, top_p=0.9, seed=1)
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == (expected, "stop")
    assert found.model == "ibidem-de-en"
    encode = translator.model.tokens
    assert found.usage.prompt_tokens == sum(map(len, encode.encode_sources(text.splitlines())))
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    parts = [{"type": "text", "text": TEXTS[0]}, {"type": "text", "text": "\n\n" + TEXTS[1]}]
    assert ask(openai, parts, "ibidem").choices[0].message.content == expected


def test_official_client_streams(openai: Any, translator: Translator) -> None:
    text = f"{TEXTS[0]}\n{TEXTS[1]}"
    chunks = list(ask(openai, text, stream=True, stream_options={"include_usage": True}))
    contents = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(contents) == 2, "a part for each line"
    assert "".join(contents) == translator.translate([text])[0]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0


def test_official_client_gets_alternatives_and_selects_memories(openai: Any, translator: Translator) -> None:
    expected = [text for text, _ in translator.alternatives(TEXTS[:1], 2)[0]]
    assert [one.message.content for one in ask(openai, TEXTS[0], n=2).choices] == expected
    without = ask(openai, GERMAN, extra_body={"memories": []}).choices[0].message.content
    assert without != ask(openai, GERMAN).choices[0].message.content


def test_official_client_lists_models(openai: Any) -> None:
    assert [model.id for model in openai.models.list()] == ["ibidem-de-en"]
    assert openai.models.retrieve("ibidem-de-en").owned_by == "ibidem"


def test_official_client_raises_the_error_message(openai: Any) -> None:
    module = pytest.importorskip("openai")
    for model, options, message in (
        ("ibidem-en-de", {}, "en is not supported"),
        ("ibidem-de-en", {"stop": ["x"]}, "stop is not supported"),
        ("ibidem-de-en", {"response_format": {"type": "json_object"}}, "response_format must be text"),
        ("ibidem-de-en", {"n": 50}, "at most 3 alternatives"),
        ("ibidem-de-en", {"extra_body": {"memories": ["other"]}}, "no memory other"),
    ):
        with pytest.raises(module.BadRequestError, match=message):
            ask(openai, "Datei", model, **options)
    with pytest.raises(module.NotFoundError, match="no model gpt-5"):
        ask(openai, "Datei", "gpt-5")
    with pytest.raises(module.NotFoundError):
        openai.models.retrieve("gpt-5")
    with pytest.raises(module.BadRequestError, match="Only text"):
        ask(openai, [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}])


def test_errors_have_openais_form(client: Client) -> None:
    found = client.post("/v1/chat/completions", {"model": "ibidem", "messages": []})
    assert found.status == 400
    assert set(found.json["error"]) == {"message", "type", "param", "code"}
    found = client.post("/v1/chat/completions", {"model": "ibidem", "messages": [{"role": "system", "content": "x"}]})
    assert "no message of the role user" in found.json["error"]["message"]
