"""Weblate: its own service classes where they are installed, and the requests that they send.

The classes need the package weblate, whose requirements conflict with those of ibidem. Set IBIDEM_WEBLATE_PYTHON to the
interpreter of an environment with it (scripts/weblate_environment.sh makes one).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ibidem.decode import Translator

    from .conftest import Client

PROCESS = Path(__file__).with_name("weblate_process.py")
TEXTS = ["Datei öffnen", "Die Datei wurde gespeichert."]
PROBE = {"api_key": "", "q": ["test"], "source": "en", "target": "de"}
DEEPL = {"formality": "default", "tag_handling": "xml", "ignore_tags": ["x"]}


def test_the_form_of_libretranslate_is_saved(client: Client) -> None:
    """The requests of LibreTranslateTranslation.validate_settings in weblate/machinery (5.14)."""
    assert [one["code"] for one in client.get("/languages").json] == ["de", "en"]
    found = client.post("/translate", PROBE)
    assert (found.status, found.json["translatedText"]) == (200, ["test"])
    assert "not translated: this server translates from de to en" in found.json["warnings"][0][0]["message"]


def test_the_form_of_deepl_is_saved(client: Client) -> None:
    """The requests of DeepLTranslation.validate_settings in weblate/machinery (5.14)."""
    assert [one["language"] for one in client.get("/v2/languages?type=target").json] == ["EN"]
    fields = {"text": ["test"], "source_lang": "en", "target_lang": "de", **DEEPL}
    (found,) = client.post("/v2/translate", fields).json["translations"]
    assert found["text"] == "test"
    assert "not translated" in found["warning"]


def test_only_the_test_translation_is_answered(client: Client) -> None:
    for q in (["Test"], ["test", "test"], ["The file was saved."], "tests"):
        refused = client.post("/translate", {**PROBE, "q": q})
        assert refused.status == 400
        assert refused.json["error"] == "en is not supported: this server translates from de to en"
    assert client.post("/translate", {**PROBE, "target": "fr"}).status == 400
    refused = client.post("/v2/translate", {"text": ["Save"], "source_lang": "EN", "target_lang": "DE", **DEEPL})
    assert refused.status == 400


def test_the_placeholders_of_deepl_are_kept(client: Client) -> None:
    fields = {"text": ['Datei <x id="6"></x> öffnen'], "source_lang": "DE", "target_lang": "EN", **DEEPL}
    assert '<x id="6"></x>' in client.post("/v2/translate", fields).json["translations"][0]["text"]


@pytest.mark.slow
def test_weblates_own_classes(client: Client, translator: Translator) -> None:
    python = os.environ.get("IBIDEM_WEBLATE_PYTHON")
    if not python:
        pytest.skip("IBIDEM_WEBLATE_PYTHON does not name an interpreter with weblate")
    done = subprocess.run(
        [python, str(PROCESS), client.url, *TEXTS],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    for name, found in json.loads(done.stdout.splitlines()[-1]).items():
        assert (found["saved"], found["errors"]) == (True, {}), name
        assert found["supported"] == [True, False]
        assert found["translations"] == translator.translate(TEXTS)
        assert found["reverse"] == []
        assert "is not supported: this server translates from de to en" in found["refused"]
        assert found["glossaries"] in (None, True)
