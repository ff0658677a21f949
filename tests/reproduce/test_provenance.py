from __future__ import annotations

import re

import pytest

from ibidem.reproduce import provenance
from ibidem.reproduce.bench import short_name


def test_the_commit_is_stated_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    provenance.find_commit.cache_clear()
    monkeypatch.setenv(provenance.COMMIT, "cafe")
    assert provenance.find_commit() == "cafe"
    provenance.find_commit.cache_clear()
    monkeypatch.delenv(provenance.COMMIT)
    found = provenance.find_commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found)
    provenance.find_commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert provenance.find_commit() is None
    provenance.find_commit.cache_clear()


@pytest.mark.parametrize(
    ("name", "short"),
    [("/home/me/models/big", "big"), ("facebook/wmt19-de-en", "facebook/wmt19-de-en")],
)
def test_a_models_name_without_its_folder(name: str, short: str) -> None:
    assert short_name(name) == short
