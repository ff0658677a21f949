"""Whole documents: translate recognises them, writes nothing but targets, and prints a report."""

from __future__ import annotations

import json
import re
import stat
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

QUICK = ("--beam", 1)
XLIFF = """<xliff version="1.2">
  <file source-language="de" target-language="en" datatype="plaintext" original="x">
    <body>
      <trans-unit id="1">
        <source>Die Datei <x id="1"/> fehlt.</source>
      </trans-unit>
      <trans-unit id="2" translate="no">
        <source>ibidem</source>
      </trans-unit>
      <trans-unit id="3">
        <source>{n, plural, one {# Datei} other {# Dateien}}</source>
      </trans-unit>
    </body>
  </file>
</xliff>
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF, "utf-8")
    return path


def added(text: str) -> list[str]:
    """The lines that a document has more; all others must be as they were."""
    before, after = XLIFF.splitlines(), text.splitlines()
    new = [line for line in after if line not in before]
    assert [line for line in after if line not in new] == before
    return new


def test_a_document_and_its_report(ibidem: Run, tmp_path: Path, tiny_folder: Path, file: Path) -> None:
    out = tmp_path / "out.xlf"
    answer = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, "-o", out)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.splitlines() == [
        f"{file}, line 11: not translated: an ICU message with several texts in one (plural, select) is left "
        "to a person",
        f'warning: {file}, line 5: the translation repeats "di"',
        f'{file} (XLIFF 1.2): 3 segments, translated 1, kept 1 (1 translate="no"), failed 1, suspicious 1',
    ]
    quiet = ibidem("translate", "--model", tiny_folder, *QUICK, "--quiet", "-i", file, "-o", out)
    assert "warning" not in quiet.err
    [target, match] = added(out.read_text("utf-8"))
    assert target.startswith('        <target state="needs-review-translation" state-qualifier="leveraged-mt">')
    assert target.count('<x id="1"/>') == 1
    assert re.fullmatch(r' {8}<alt-trans match-quality="\d+%" origin="ibidem"><target>.*</target></alt-trans>', match)
    assert file.read_text("utf-8") == XLIFF
    as_json = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, "-o", out, "--json")
    report = json.loads(as_json.out)
    assert as_json.err == ""
    assert (report["segments"], report["translated"], report["kept"]) == (3, 1, {'translate="no"': 1})
    assert [(failure["line"], failure["source"][:3]) for failure in report["failed"]] == [(11, "{n,")]


def test_through_pipes_by_format(ibidem: Run, tiny_folder: Path, file: Path) -> None:
    shown = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file)
    piped = ibidem("translate", "--model", tiny_folder, *QUICK, "--format", "xliff", stdin=XLIFF)
    assert shown.out == piped.out
    assert len(added(shown.out)) == 2
    assert piped.err.splitlines()[-1].startswith("standard input (XLIFF 1.2): 3 segments")
    plain = ibidem("translate", "--model", tiny_folder, *QUICK, "--format", "plain", stdin="Datei %s\n\nHallo {x}\n")
    assert [line.count("%s") + line.count("{x}") for line in plain.lines] == [1, 0, 1]


@pytest.mark.parametrize(("name", "warned"), [("b.pdf", True), ("b.po", True), ("b.xliff", False), ("b.out", False)])
def test_an_output_of_another_format(
    ibidem: Run, tmp_path: Path, tiny_folder: Path, file: Path, name: str, warned: bool
) -> None:
    answer = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, "-o", tmp_path / name)
    assert (f"{tmp_path / name} gets the format of {file}" in answer.err) == warned


def test_a_text_that_stays_a_text_is_no_conversion(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "a.txt").write_text("Ein Brief.\n", "utf-8")
    paths = "-i", tmp_path / "a.txt", "-o", tmp_path / "b.txt"
    assert "gets the format" not in ibidem("translate", "--model", tiny_folder, *QUICK, "--format", "text", *paths).err


def test_in_place(ibidem: Run, fails: Run, tmp_path: Path, tiny_folder: Path, file: Path) -> None:
    message = fails(2, "translate", "--model", tiny_folder, "-i", file, "-o", tmp_path / "." / "a.xlf")
    assert "is the input file" in message
    assert "--in-place" in message
    for wrong in (["--in-place"], ["--in-place", "-i", file, "-o", tmp_path / "b.xlf"]):
        assert "--in-place writes to the file given with --input" in fails(2, "translate", *wrong)
    file.chmod(0o640)
    link = tmp_path / "link.xlf"
    link.symlink_to(file)
    assert (
        ibidem("translate", "--model", tiny_folder, *QUICK, "-i", link, "--in-place", "--no-mark-confidence").code == 0
    )
    assert link.is_symlink()
    assert len(added(file.read_text("utf-8"))) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xlf", "link.xlf"]


def test_po_options(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    file = tmp_path / "a.po"
    file.write_text(
        'msgid "Hallo"\nmsgstr ""\n\n#, fuzzy\nmsgid "Welt"\nmsgstr "x"\n\nmsgid "Haus"\nmsgstr "y"\n', "utf-8"
    )

    def run(*options: str) -> str:
        answer = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, *options)
        assert answer.code == 0
        return answer.out

    assert [run().count("fuzzy"), run("--fuzzy").count("fuzzy"), run("--overwrite").count("fuzzy")] == [2, 2, 3]
    assert run("--fuzzy", "--no-mark-fuzzy").count("fuzzy") == 0
    assert 'msgstr "x"' in run()
    assert 'msgstr "x"' not in run("--fuzzy")
    assert 'msgstr "y"' in run("--fuzzy")
    assert 'msgstr "y"' not in run("--overwrite")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["-i", "a.xlf", "--n-best", 2, "--json", "-o", "b.xlf"],
            "--n-best, --prefixes, --matches and --confidence are for lines",
        ),
        (["-i", "a.xlf", "--json"], "--json prints the report of a document"),
        (["--overwrite"], "are for documents"),
        (["--no-mark-fuzzy"], "are for documents"),
        (["--format", "pdf"], "'pdf' is no format of a document"),
        (["-i", "a.po.gz"], "Unpack it first"),
    ],
)
def test_invalid_arguments_are_refused(fails: Run, arguments: list[object], what: str) -> None:
    assert what in fails(2, "translate", *arguments)


def test_documents_that_cannot_be_translated(fails: Run, tmp_path: Path, tiny_folder: Path, file: Path) -> None:
    out = tmp_path / "out.xlf"
    out.write_text("before")

    def failing(text: str) -> str:
        file.write_text(text, "utf-8")
        return fails(1, "translate", "--model", tiny_folder, "-i", file, "-o", out)

    other = failing(XLIFF.replace('"de"', '"fr-FR"'))
    assert "a.xlf, line 2: its source language is 'fr-FR', but the model's is 'de'" in other
    assert "a.xlf, line 2: its target language is 'it'" in failing(XLIFF.replace('"en"', '"it"'))
    assert "a.xlf, line 6: not well-formed XML" in failing(XLIFF.replace("</source>", "", 1))
    assert "the entity 'x' is refused" in failing(f'<!DOCTYPE xliff [<!ENTITY x "y">]>\n{XLIFF}')
    assert "missing.xlf" in fails(1, "translate", "--model", tiny_folder, "-i", tmp_path / "missing.xlf", "-o", out)
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xlf", "out.xlf"]


def test_an_office_document(ibidem: Run, fails: Run, tmp_path: Path, tiny_folder: Path) -> None:
    library = pytest.importorskip("docx")
    document = library.Document()
    document.add_paragraph("Die Datei ").add_run("fehlt").bold = True
    path, out = tmp_path / "a.docx", tmp_path / "b.docx"
    document.save(path)
    answer = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", path, "-o", out)
    last = answer.err.splitlines()[-1]
    assert last.startswith(f"{path} (DOCX): 1 segment, translated 1, kept 0, failed 0")
    [paragraph] = library.Document(out).paragraphs
    assert [run.bold for run in paragraph.runs].count(True) == 1
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(out) as after:
        assert before.namelist() == after.namelist()
        assert [name for name in before.namelist() if before.read(name) != after.read(name)] == ["word/document.xml"]
    # An office document given as lines is refused before anything is written.
    renamed = tmp_path / "a.text"
    renamed.write_bytes(path.read_bytes())
    refused = fails(1, "translate", "--model", tiny_folder, *QUICK, "-i", renamed, "-o", tmp_path / "c.txt")
    assert f"{renamed}: it is a zip archive or an office document (DOCX, XLSX, ODT), not text." in refused
    assert not (tmp_path / "c.txt").exists()
    refused = fails(1, "add", "-m", tmp_path / "memory", "--model", tiny_folder, "--file", renamed, "--format", "tsv")
    assert "it is a zip archive or an office document" in refused
