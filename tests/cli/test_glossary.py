"""The commands of `ibidem glossary`, and --glossary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ibidem.glossary import Glossary

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run


@pytest.fixture
def file(ibidem: Run, tmp_path: Path) -> Path:
    """A glossary of two terms."""
    (tmp_path / "terms.csv").write_text("de,en\nMandant,tenant\nOrdner,directory\nOrdner,directory\n", "utf-8")
    made = ibidem("glossary", "create", tmp_path / "app.glossary", "--from", tmp_path / "terms.csv", "--name", "my app")
    assert (made.code, made.out) == (0, f"{tmp_path / 'app.glossary'}: 2 terms\n")
    assert "1 rows repeat others" in made.err
    return tmp_path / "app.glossary"


def test_a_glossary_from_a_table_to_a_table(ibidem: Run, file: Path, tmp_path: Path) -> None:
    added = ibidem("glossary", "add", file, " Beleg ", "voucher", "receipt")
    assert added.out == "Beleg -> voucher | receipt\n"
    assert ibidem("glossary", "add", file, "Beleg", "slip").out == "Beleg -> slip (was voucher | receipt)\n"
    assert ibidem("glossary", "remove", file, "Ordner").out == f"{file}: 2 terms\n"
    shown = json.loads(ibidem("glossary", "show", file, "--json").out)
    assert (shown["name"], shown["version"], shown["terms"]) == ("my app", 4, 2)
    assert shown["entries"][1] == {"source": "Beleg", "targets": ["slip"]}
    assert "Mandant" in ibidem("glossary", "show", file).out
    listed = json.loads(ibidem("glossary", "list", tmp_path, "--json").out)
    assert [(one["file"], one["terms"]) for one in listed] == [(str(file), 2)]
    assert ibidem("glossary", "export", file).out == "de,en\nMandant,tenant\nBeleg,slip\n"
    for ending in ("csv", "tsv", "tbx"):
        assert ibidem("glossary", "export", file, "-o", tmp_path / f"out.{ending}").code == 0
        again = tmp_path / f"{ending}.glossary"
        assert ibidem("glossary", "create", again, "--from", tmp_path / f"out.{ending}").code == 0
        assert Glossary.open(again).entries == Glossary.open(file).entries
    (tmp_path / "more.tsv").write_text("Mandant\tclient\nHaus\thouse\n", "utf-8")
    imported = ibidem("glossary", "import", file, tmp_path / "more.tsv")
    assert imported.out == f"{file}: 1 new, 1 changed, 3 terms\n"
    assert "Mandant: tenant -> client" in imported.err


def test_errors(ibidem: Run, file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    (tmp_path / "bad.csv").write_text("Mandant,tenant\nMandant,client\n", "utf-8")
    for arguments, message in (
        (("create", file), "exists already"),
        (("create", tmp_path / "x.csv"), "ends in .glossary"),
        (("create", tmp_path / "y.glossary", "--from", tmp_path / "bad.csv"), "line 2: 'Mandant' is 'client' here"),
        (("create", tmp_path / "y.glossary", "--target-language", "de"), "Invalid languages"),
        (("import", file, tmp_path / "missing.csv"), "cannot be read"),
        (("add", tmp_path / "terms.csv", "a", "b"), "ibidem glossary create terms.glossary --from"),
        (("add", file, "a", "\x07"), "control character"),
        (("remove", file, "Foo"), "does not have 'Foo'"),
        (("list", tmp_path / "missing"), "no folder"),
        (("export", file, "-o", tmp_path / "x.doc"), "unknown format"),
    ):
        answer = ibidem("glossary", *arguments)
        assert (answer.code > 0, message in answer.err) == (True, True), (arguments, answer)
    assert file.read_bytes() == before
    assert "check the path" in ibidem("translate", "--glossary", tmp_path / "missing.csv", stdin="x\n").err
    file.write_bytes(before[:-10])
    assert "damaged" in ibidem("translate", "--glossary", file, stdin="x\n").err


def test_translation_with_a_glossary(ibidem: Run, file: Path) -> None:
    lines = "Der Mandant ist neu.\nGuten Morgen.\n\n"
    answer = ibidem("translate", "--glossary", file, stdin=lines)
    assert answer.lines == ["The tenant is new.", "Good morning.", ""]
    assert answer.err.splitlines()[-1] == "glossary my app: 1 term found, 1 forced, 0 unmet"
    explained = ibidem("explain", "--glossary", file, "Der Mandant ist neu.").out
    assert "from the glossary my app" in explained
    assert "glossary my app: Mandant -> tenant (forced)" in explained
    pairs = file.with_name("test.tsv")
    pairs.write_text("Der Mandant ist neu.\tThe tenant is new.\n", "utf-8")
    report = json.loads(ibidem("evaluate", "--test", pairs, "--glossary", file, "--samples", 2, "--json").out)
    assert report["systems"]["glossary"]["scores"]["BLEU"] > report["systems"]["base"]["scores"]["BLEU"]
