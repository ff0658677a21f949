"""The base model in CTranslate2, where that is installed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ibidem.decode import Translator
from ibidem.errors import UsageError
from ibidem.evaluate.bench.converted import converted_contender, has_ctranslate2


def test_what_is_not_installed_is_named(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.converted.has_ctranslate2", lambda: False)
    with pytest.raises(UsageError, match="pip install ctranslate2"):
        converted_contender(tiny)


def test_only_marian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.converted.has_ctranslate2", lambda: True)
    other = SimpleNamespace(network=torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="not Linear"):
        converted_contender(other)  # type: ignore[arg-type]


@pytest.mark.skipif(not has_ctranslate2(), reason="CTranslate2 is not installed")
def test_it_translates_and_leaves_the_model_alone(tiny) -> None:
    texts = ["eins zwei drei", "vier"]
    before = Translator(tiny).translate(texts)
    sources = tiny.tokens.encode_sources(texts)
    assert converted_contender(tiny).translate(sources, 2) >= len(texts)
    assert Translator(tiny).translate(texts) == before
