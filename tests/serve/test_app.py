"""The whole application: no string of a client causes an internal error, and errors have no details."""

from __future__ import annotations

import json
import shutil
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve import Limits, ServeSettings, make_service, running

from .conftest import TEXT, Client, make_translator, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.decode import Translator

JSON = {"Content_Type": "application/json"}
TEXTS = {"surrogate": "a\ud800", "null": "\0", "300 bytes": "ä" * 150, "70,000 bytes": "ä" * 35_000}
# uvicorn refuses headers of more than 64 KiB and closes the connection.
HEAD_TEXTS = {"surrogate": "a\ud800", "null": "\0", "300 bytes": "ä" * 150, "60,000 bytes": "a" * 60_000}


@pytest.fixture(scope="module")
def folder(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(memory.path, tmp_path_factory.mktemp("hostile") / "mine")


@pytest.fixture(scope="module")
def open_client(tiny: Any, folder: Path) -> Iterator[Client]:
    """A server with the default limits except for the rate."""
    stores = {"memories": folder.parent / "store", "glossaries": folder.parent / "glossaries"}
    settings = ServeSettings(Limits(rate=1e6, burst=100_000), **stores)
    with running(make_service(make_translator(tiny, folder), settings)) as url:
        yield Client(url)


class Schemas:
    """Values for the schemas of an OpenAPI document."""

    def __init__(self, document: Any) -> None:
        self._parts = document["components"]["schemas"]

    def resolve(self, schema: Any) -> Any:
        return self._parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def plain(self, schema: Any, *, strings: bool = False) -> Any:
        """Return a valid value; an object has its required fields, with `strings` also the optional strings."""
        schema = self.resolve(schema)
        if "anyOf" in schema:
            return self.plain(schema["anyOf"][0])
        if "enum" in schema:
            return schema["enum"][0]
        if "type" not in schema:  # any value
            return None
        if schema["type"] == "array":
            return [self.plain(schema["items"])]
        if schema["type"] == "object":
            return {
                name: self.plain(field)
                for name, field in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or (strings and isinstance(self.plain(field), str))
            }
        return {"string": "a", "integer": 0, "number": 1.0, "boolean": False}[schema["type"]]

    def with_text(self, schema: Any, text: str) -> Iterator[Any]:
        """Yield values in which one string is the text, for each string that a value can have."""
        schema = self.resolve(schema)
        for option in schema.get("anyOf", ()):
            yield from self.with_text(option, text)
        if schema.get("type") == "string":
            yield text
        if schema.get("type") == "array":
            yield from ([value] for value in self.with_text(schema["items"], text))
        if schema.get("type") == "object":
            for name, field in schema.get("properties", {}).items():
                for strings in (False, True):
                    base = self.plain(schema, strings=strings)
                    yield from ({**base, name: value} for value in self.with_text(field, text))
            if schema.get("additionalProperties"):
                yield {text: self.plain(schema["additionalProperties"])}


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        yield from ((method.upper(), path, operation) for method, operation in methods.items())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_strings_in_bodies(open_client: Client, folder: Path, text: str) -> None:
    document = open_client.get("/openapi.json").json
    schemas = Schemas(document)
    tried = 0
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            continue
        for value in schemas.with_text(content["application/json"]["schema"], text):
            answer = open_client.send(method, path.replace("{name}", "mine"), json.dumps(value).encode(), **JSON)
            assert answer.status < 500, (method, path, value)
            assert text != TEXTS["surrogate"] or answer.status == 400
            assert len(answer.body) < 200_000
            tried += 1
    assert tried > 60
    assert Memory.open(folder).verify() == []


@pytest.mark.parametrize("text", HEAD_TEXTS.values(), ids=HEAD_TEXTS)
def test_strings_in_paths_and_queries(open_client: Client, text: str) -> None:
    document = open_client.get("/openapi.json").json
    quoted = urllib.parse.quote(text.encode("utf-8", "surrogatepass"))
    tried = 0
    for method, path, operation in operations(document):
        named = [parameter for parameter in operation.get("parameters", []) if parameter["schema"]["type"] == "string"]
        for parameter in named:
            plain = {"name": "mine", "q": "Datei", **({} if parameter["name"] == "text" else {"target": "en"})}
            address, query = path, f"{parameter['name']}={quoted}"
            for other in named:
                value = quoted if other is parameter else plain.get(other["name"], "a")
                address = address.replace(f"{{{other['name']}}}", value)
                if other["in"] == "query" and other is not parameter and other["name"] in plain:
                    query += f"&{other['name']}={value}"
            try:
                answer = open_client.send(method, f"{address}?{query}", b"" if method == "POST" else None)
            except ConnectionResetError:  # the server refuses a long address before it has read all of it
                assert len(text) > 10_000
                tried += 1
                continue
            assert answer.status < 500, (method, path, parameter["name"])
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("text", HEAD_TEXTS.values(), ids=HEAD_TEXTS)
@pytest.mark.parametrize("name", ["Authorization", "Content_Type", "Origin", "Sec_Fetch_Site", "Content_Encoding"])
def test_strings_in_headers(open_client: Client, name: str, text: str) -> None:
    value = text.encode("utf-8", "surrogatepass").decode("latin-1").replace("\0", "\x01")
    headers = {**JSON, name: f"Bearer {value}"}
    assert open_client.send("POST", "/detect", b'{"q": "a"}', **headers).status < 500


def test_a_long_suggestion_is_refused_before_it_is_split(open_client: Client) -> None:
    """Splitting a megabyte of blank lines would block the event loop for seconds."""
    refused = open_client.form("/suggest", {"q": "\n" * 30_000, "s": "\n"})
    assert (refused.status, "exceeds text limit" in refused.json["error"]) == (400, True)


def test_internal_errors_have_no_details(
    translator: Translator, memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = f"cannot open {memory.path}/segments"

    def fail(*_: object) -> None:
        raise RuntimeError(secret)

    with served(translator) as (client, service):
        monkeypatch.setattr(service.batcher, "_decode", fail)
        for path, body in (("/translate", TEXT), ("/v2/translate", {"text": ["a"], "target_lang": "EN"})):
            answer = client.post(path, body)
            assert answer.status == 500
            assert "RuntimeError" not in answer.body.decode()
            assert str(memory.path) not in answer.body.decode()
            assert "Traceback" not in answer.body.decode()
        monkeypatch.undo()
        assert client.post("/translate", TEXT).status == 200, "the server still works"
    assert secret in caplog.text
