"""Schemas of requests, and the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.serve import Limits, ServeSettings, deepl_schemas, make_service, running, schemas

from .conftest import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.decode import Translator


def test_a_list_of_invalid_items_has_one_error() -> None:
    """An error for each item would be slow for a large body."""
    from pydantic import ValidationError

    wrong = [None] * 1_000
    for model, fields in (
        (schemas.TranslateRequest, {"q": wrong}),
        (schemas.TranslateRequest, {"q": "a", "memories": wrong}),
        (schemas.TranslateRequest, {"q": "a", "memories": {str(number): "x" for number in range(2_000)}}),
        (deepl_schemas.DeeplRequest, {"text": wrong, "target_lang": "EN"}),
        (schemas.AddRequest, {"pairs": wrong}),
        (schemas.RemoveRequest, {"ids": wrong}),
    ):
        with pytest.raises(ValidationError) as caught:
            model.model_validate(fields, strict=True)
        assert caught.value.error_count() < 5


def references(part: Any) -> Iterator[str]:
    """All references in a part of the document."""
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from references(item)


def test_all_references_resolve(client: Client) -> None:
    document = client.get("/openapi.json").json
    assert document["openapi"].startswith("3.")
    found = set(references(document))
    assert {"#/components/schemas/TranslateRequest", "#/components/schemas/NewPair"} <= found
    for reference in found:
        part = document
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]


def test_the_document_is_built_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building the document blocks the event loop for a tenth of a second."""
    built = []
    real = schemas.get_openapi
    monkeypatch.setattr(schemas, "get_openapi", lambda **given: built.append(1) or real(**given))
    with running(make_service(translator, ServeSettings(Limits(rate=1e6)))) as url:
        answers = {Client(url).get("/openapi.json").body for _ in range(5)}
    assert (len(answers), len(built)) == (1, 1)


def test_all_routes_are_described(client: Client) -> None:
    paths = client.get("/openapi.json").json["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert calls == {
        *("GET /translate", "POST /translate", "POST /suggest", "POST /detect", "GET /languages", "GET /health"),
        *("GET /frontend/settings", "POST /v2/translate", "GET /v2/languages", "GET /v2/usage"),
        *("POST /documents", "GET /documents/{id}", "GET /documents/{id}/file", "DELETE /documents/{id}"),
        *("POST /translate_file", "GET /download_file/{name}"),
        *("POST /v2/document", "POST /v2/document/{id}", "POST /v2/document/{id}/result"),
        *("GET /v3/translation_memories", "GET /memories", "POST /memories/{name}/pairs"),
        *("DELETE /memories/{name}/pairs", "POST /memories/{name}/import", "GET /jobs/{id}", "DELETE /jobs/{id}"),
        *("POST /memories", "PATCH /memories/{name}", "DELETE /memories/{name}", "GET /memories/{name}/export"),
        *("GET /trash", "POST /trash/{kind}/{id}/restore", "DELETE /trash/{kind}/{id}", "POST /segments"),
        *("GET /glossaries", "POST /glossaries/import", "GET /glossaries/{id}/export", "GET /metrics"),
        *("GET /memories/{name}/search",),
        *("POST /v1/chat/completions", "GET /v1/models", "GET /v1/models/{name}"),
        *("POST /v2/glossaries", "GET /v2/glossaries", "GET /v2/glossary-language-pairs", "GET /v2/glossaries/{id}"),
        *("GET /v2/glossaries/{id}/entries", "DELETE /v2/glossaries/{id}", "POST /v3/glossaries"),
        *("GET /v3/glossaries", "GET /v3/glossaries/{id}", "PATCH /v3/glossaries/{id}"),
        *("DELETE /v3/glossaries/{id}", "GET /v3/glossaries/{id}/entries"),
        *("PUT /v3/glossaries/{id}/dictionaries", "DELETE /v3/glossaries/{id}/dictionaries"),
    }
    for path in ("/translate", "/suggest", "/detect", "/v2/translate"):
        assert set(paths[path]["post"]["requestBody"]["content"]) == {
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        }
    assert "422" not in str(paths), "invalid bodies have status 400"
    fields = client.get("/openapi.json").json["components"]["schemas"]["TranslateRequest"]["properties"]
    assert {"q", "source", "target", "memories", "explain"} <= set(fields)
