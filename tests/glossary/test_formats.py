"""Files of terms: CSV, TSV and TBX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import GlossaryError
from ibidem.glossary import FORMATS, Entry, Glossary, format_of, load_glossary, parse_terms, write_terms

if TYPE_CHECKING:
    from pathlib import Path

TENANT = (Entry("Mandant", ("tenant",)),)
TBX_2 = b"""<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX"><text><body>
<termEntry id="1"><descrip type="subjectField">Mandant im Text</descrip>
 <langSet xml:lang="de-DE"><tig><term>Mandant</term></tig></langSet>
 <langSet xml:lang="en"><tig><term>tenant</term></tig>
  <tig><term>client</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig></langSet>
 <langSet xml:lang="fr"><tig><term>locataire</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="de"><ntig><termGrp><term>Ordner</term></termGrp></ntig></langSet></termEntry>
</body></text></martif>"""
TBX_3 = b"""<tbx type="TBX-Basic" xmlns="urn:iso:std:iso:30042:ed-2" xml:lang="en"><text><body>
<conceptEntry id="1"><langSec xml:lang="en"><termSec><term>tenant</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Mandant</term></termSec></langSec></conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (b"Mandant,tenant\n", "csv"),
        (b"Mandant;tenant\r\n", "csv"),
        (b"Mandant\ttenant\n", "csv"),
        (b'"Mandant","tenant"\n', "csv"),
        (b"de,en\nMandant,tenant\n", "csv"),
        (b"EN-GB,DE\ntenant,Mandant\n", "csv"),
        (b"Deutsch;English;Notiz\r\nMandant;tenant;x\r\n", "csv"),
        (b"Source,Comment,Target\nMandant,see manual,tenant\n", "csv"),
        (b"\xef\xbb\xbf\n\n Mandant , tenant \n", "csv"),
        ("Mandant\ttenant\n".encode("utf-16"), "tsv"),
        (b"Mandant\ttenant\nMandant\ttenant\n", "tsv"),
        (TBX_2, "tbx"),
        (TBX_3, "tbx"),
    ],
)
def test_terms_are_read(content: bytes, format: str) -> None:
    assert parse_terms(content, "terms", "de", "en", format=format).entries == TENANT


def test_alternatives_and_duplicates() -> None:
    found = parse_terms(b"Mandant,tenant | client\nOrdner,directory\nOrdner,directory\n", "t", "de", "en", format="csv")
    assert found.entries == (Entry("Mandant", ("tenant", "client")), Entry("Ordner", ("directory",)))
    assert found.duplicates == 1


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (b"a,b\nMandant,tenant\nMandant,client\n", "csv", "line 3: 'Mandant' is 'client' here and 'tenant' in line 2"),
        (b"Mandant\n", "csv", "line 1: one column"),
        (b"Mandant\tx\nOrdner\n", "tsv", "line 2: one column .* tab"),
        (b'a,b\n"Mandant,tenant\n', "csv", "line 2: .*quotation mark"),
        (b"Mandant,\n", "csv", "line 1: 'Mandant' is no valid term, it has no translation"),
        (b"\n\n,tenant\n", "csv", "line 3: .* source is empty"),
        (b"Mandant,Gesch\xe4ft\n", "csv", "line 1: not UTF-8"),
        (b"PK\x03\x04\x00\x00", "csv", "not text"),
        (b"", "csv", "no term"),
        (b"de,en\n", "csv", "no term"),
        (b"<html><body/></html>", "tbx", "<html> where"),
        (b"<tbx>", "tbx", "line 1: not well-formed"),
        (b'<!DOCTYPE t [<!ENTITY a "b">]><tbx>&a;</tbx>', "tbx", "entity"),
        (b"<tbx>" * 400, "tbx", "inside one another"),
        (b"".join(b"w%d,x\n" % n for n in range(100_000)), "csv", "more than"),
    ],
)
def test_errors_name_the_line(content: bytes, format: str, message: str) -> None:
    with pytest.raises(GlossaryError, match=message):
        parse_terms(content, "terms", "de", "en", format=format)


def test_many_errors_are_counted() -> None:
    with pytest.raises(GlossaryError, match="and perhaps more") as error:
        parse_terms(b"a,\n" * 50, "terms.csv", "de", "en", format="csv")
    assert str(error.value).count("terms.csv, line") == 10


WORD = st.text(st.characters(categories=("L", "N", "P", "Zs"), exclude_characters="|"), min_size=1, max_size=12).map(
    lambda text: f"a{' '.join(text.split())}b"
)


@given(st.dictionaries(WORD, st.lists(WORD, min_size=1, max_size=3, unique=True), min_size=1, max_size=6))
def test_written_terms_are_read_as_they_were(terms: dict[str, list[str]]) -> None:
    import unicodedata

    entries = {}
    for source, targets in terms.items():
        clean = [unicodedata.normalize("NFC", target) for target in targets]
        entries[unicodedata.normalize("NFC", source)] = tuple(dict.fromkeys(clean))
    glossary = Glossary("app", "de", "en", [Entry(*entry) for entry in entries.items()])
    for format in FORMATS:
        text = write_terms(glossary, format)
        assert parse_terms(text.encode(), "t", "de", "en", format=format).entries == glossary.entries


def test_files_are_opened_by_their_endings(tmp_path: Path) -> None:
    (tmp_path / "app.csv").write_text("Mandant,tenant\n", encoding="utf-8")
    glossary = load_glossary(tmp_path / "app.csv")
    assert (glossary.name, glossary.entries) == ("app", TENANT)
    glossary.save(tmp_path / "app.glossary")
    assert load_glossary(tmp_path / "app.glossary").entries == TENANT
    assert format_of("x.TSV") == "tsv"
    with pytest.raises(GlossaryError, match="unknown format"):
        load_glossary(tmp_path / "app.xlsx")
    with pytest.raises(GlossaryError, match="cannot be read"):
        load_glossary(tmp_path / "missing.csv")


def test_the_terms_of_a_concept_share_their_translations() -> None:
    """One tuple for each would take memory quadratic in the terms of a concept."""
    groups = "".join(f"<tig><term>{sign}</term></tig>" for sign in "abc")
    sides = "".join(f'<langSet xml:lang="{tag}">{groups}</langSet>' for tag in ("de", "en"))
    terms = parse_terms(f"<tbx><termEntry>{sides}</termEntry></tbx>".encode(), "a.tbx", "de", "en", format="tbx")
    first, *others = [entry.targets for entry in terms.entries]
    assert first == ("a", "b", "c")
    assert len(others) == 2
    assert all(targets is first for targets in others)
