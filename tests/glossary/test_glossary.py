"""Glossaries and their files."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import GlossaryError, UsageError
from ibidem.glossary import Entry, Glossary, clean_term, update_glossary

if TYPE_CHECKING:
    from pathlib import Path

GLOSSARY = Glossary(
    "app", "de", "en", [Entry("Mandant", ("tenant", "client")), Entry("Schaltfläche", ("push button",))]
)


def test_a_saved_glossary_is_read_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "app.glossary"
    GLOSSARY.save(file)
    found = Glossary.open(file)
    for name in ("name", "source_language", "target_language", "entries", "version", "created", "owner"):
        assert getattr(found, name) == getattr(GLOSSARY, name)
    assert [path.name for path in tmp_path.iterdir()] == ["app.glossary"]


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    file = tmp_path / "app.glossary"
    GLOSSARY.save(file)
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(GlossaryError, match="damaged"):
            Glossary.open(file)
    for end in (0, 1, 50, len(content) - 1):
        file.write_bytes(content[:end])
        with pytest.raises(GlossaryError, match="damaged"):
            Glossary.open(file)
    with pytest.raises(GlossaryError, match="cannot be read"):
        Glossary.open(tmp_path / "missing.glossary")
    with pytest.raises(GlossaryError, match="cannot be written"):
        GLOSSARY.save(tmp_path / "missing" / "app.glossary")


def test_changes_make_a_new_version() -> None:
    more = GLOSSARY.add([Entry("Ordner", ("directory",)), Entry("Mandant", ("tenant",))])
    assert [entry.source for entry in more.entries] == ["Mandant", "Schaltfläche", "Ordner"]
    assert more.find("Mandant") == Entry("Mandant", ("tenant",))
    assert more.find("mandant") is None
    fewer = more.remove(["Mandant", "Ordner"])
    assert ([entry.source for entry in fewer.entries], fewer.version) == (["Schaltfläche"], 3)
    with pytest.raises(GlossaryError, match="does not have 'Foo'"):
        more.remove(["Mandant", "Foo"])


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (Entry("", ("x",)), "source is empty"),
        (Entry("x", ("",)), "target is empty"),
        (Entry("x", ("y" * 201,)), "more than 200"),
        (Entry("a\nb", ("x",)), "control character"),
        (Entry("\ud800", ("x",)), "control character"),
        (Entry("!?", ("x",)), "no letter"),
        (Entry("x", tuple("abcdefghijklmnopq")), "more than 16"),
    ],
)
def test_invalid_entries_are_refused(entry: Entry, reason: str) -> None:
    with pytest.raises(GlossaryError, match=reason):
        Glossary("app", "de", "en", [entry])


def test_invalid_glossaries_are_refused() -> None:
    for arguments in (
        ("", "de", "en"),
        ("x" * 201, "de", "en"),
        ("a\x1bb", "de", "en"),
        ("x", "de", "de-AT"),
        ("x", "", ""),
    ):
        with pytest.raises(GlossaryError, match="Invalid"):
            Glossary(*arguments)
    with pytest.raises(GlossaryError, match="twice"):
        Glossary("x", "de", "en", [Entry("a", ("b",)), Entry("a", ("c",))])
    with pytest.raises(UsageError, match="de to en"):
        GLOSSARY.check_languages("en", "de")
    GLOSSARY.check_languages("deu_Latn", None)


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "app.glossary"
    GLOSSARY.save(file)

    def add(number: int) -> None:
        update_glossary(file, lambda glossary: glossary.add([Entry(f"Wort{number}", ("word",))]))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Glossary.open(file)) == len(GLOSSARY) + 8


@given(st.text())
def test_cleaning_a_term_twice_changes_nothing(text: str) -> None:
    once = clean_term(text)
    assert clean_term(once) == once
    assert "\n" not in once
    assert once == once.strip()
