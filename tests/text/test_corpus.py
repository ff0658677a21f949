"""Corpora of every format: reading again, progress, standard input and wrong arguments."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError, UsageError
from ibidem.text import Corpus, Pair

from .conftest import Write, sides

ENDINGS = ["", ".gz", ".xz"]


def to_tsv(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def to_jsonl(pairs: list[tuple[str, str]]) -> str:
    def quote(text: str) -> str:
        return '"' + "".join(f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in text) + '"'

    return "".join(f'{{"translation": {{"de": {quote(s)}, "en": {quote(t)}}}}}\n' for s, t in pairs)


def to_tmx(pairs: list[tuple[str, str]]) -> str:
    def side(language: str, text: str) -> str:
        return f'<tuv xml:lang="{language}"><seg>{escape(text)}</seg></tuv>'

    units = "".join(f"<tu>{side('de', source)}{side('en', target)}</tu>" for source, target in pairs)
    return f"<tmx><body>{units}</body></tmx>"


def to_po(pairs: list[tuple[str, str]]) -> str:
    def quote(text: str) -> str:
        return '"' + "".join(f"\\{ord(c):03o}" if c < " " or c in '"\\' else c for c in text) + '"'

    entries = "".join(f'\nmsgctxt "{n}"\nmsgid {quote(t)}\nmsgstr {quote(s)}\n' for n, (s, t) in enumerate(pairs))
    return f'msgid ""\nmsgstr "Language: de\\n"\n{entries}'


WRITERS = {"tsv": to_tsv, "jsonl": to_jsonl, "tmx": to_tmx, "po": to_po}

# Newlines and tabs are turned into spaces and edges are stripped; a catalogue is also cleaned of accelerators
# and identical sides, so those have tests of their own.
TEXT = st.text(st.characters(exclude_characters="\n\t", codec="utf-8")).map(str.strip).filter(bool)
XML_TEXT = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))
    .map(str.strip)
    .filter(bool)
)
PO_TEXT = st.text(st.characters(exclude_characters="\n\t\r&_~", codec="utf-8")).map(str.strip).filter(bool)
TEXTS = {"tsv": TEXT, "jsonl": TEXT, "tmx": XML_TEXT, "po": PO_TEXT}


@pytest.mark.parametrize("format", WRITERS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_arbitrary_text_is_read_unchanged(format: str, tmp_path: Path, data: st.DataObject) -> None:
    text = TEXTS[format]
    pairs = data.draw(st.lists(st.tuples(text, text).filter(lambda pair: pair[0] != pair[1]), max_size=5))
    path = tmp_path / f"x.{format}"
    path.write_bytes(WRITERS[format](pairs).encode("utf-8"))
    corpus = Corpus([path])
    assert sides(corpus) == pairs
    assert corpus.counts.read == corpus.counts.kept == len(pairs)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_aligned_lines_are_read_unchanged(tmp_path: Path, lines: list[tuple[str, str]]) -> None:
    paths = tmp_path / "x.de", tmp_path / "x.en"
    for path, side in zip(paths, (0, 1), strict=True):
        path.write_bytes("".join(pair[side] + "\n" for pair in lines).encode())
    assert sides(Corpus(paths)) == lines


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("format", WRITERS)
def test_a_corpus_can_be_read_again(write: Write, format: str, ending: str) -> None:
    path = write(f"x.{format}{ending}", WRITERS[format]([(f"Satz {n}", f"sentence {n}") for n in range(100)]))
    corpus = Corpus([path])
    first = list(corpus)
    counts = corpus.counts
    assert len(first) == 100
    assert list(corpus) == first
    assert corpus.counts == counts
    assert corpus.counts is not counts


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("format", ["tsv", "jsonl", "tmx", "po", "lines"])
def test_the_fraction_grows_from_zero_to_one(write: Write, format: str, ending: str) -> None:
    draw = random.Random(7).random
    pairs = [(f"Satz {draw()}", f"sentence {draw()}") for _ in range(10_000)]
    if format == "lines":
        paths = [write(f"{side}{ending}", "".join(pair[side] + "\n" for pair in pairs)) for side in (0, 1)]
    else:
        paths = [write(f"x.{format}{ending}", WRITERS[format](pairs))]
    corpus = Corpus(paths)
    assert corpus.fraction() == 0
    seen = [corpus.fraction() or 0.0 for _ in corpus]
    assert all(before <= after for before, after in pairwise(seen))
    assert seen[0] < 0.6
    assert len(set(seen)) > 2
    assert corpus.fraction() == 1


def test_an_empty_file_is_wholly_read(write: Write) -> None:
    assert Corpus([write("a.tsv", "")]).fraction() == 1


def test_the_origin_is_the_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text("a\tb\n")
    assert list(Corpus(["./a.tsv"])) == [Pair("a", "b", "./a.tsv", 1)]


def test_the_format_can_be_stated(write: Write) -> None:
    assert sides(Corpus([write("a.txt.gz", "a\tb\n")], format="tsv")) == [("a", "b")]
    tables = write("a.tsv", "a\tb\n"), write("b.tsv", "c\n")
    assert sides(Corpus(tables, format="lines")) == [("a b", "c")]


def test_endings_are_recognised_in_capitals(write: Write) -> None:
    assert sides(Corpus([write("A.TSV", "a\tb\n")])) == [("a", "b")]


def test_an_unknown_ending_is_refused_with_the_known_ones(write: Write) -> None:
    with pytest.raises(UsageError) as error:
        Corpus([write("a.docx.gz", "")])
    for word in ("a.docx.gz", ".tsv", ".jsonl", ".tmx", ".po", ".mo", ".gz", ".xz", "--format"):
        assert word in str(error.value)


def test_an_unknown_format_is_refused_with_the_known_ones(write: Write) -> None:
    with pytest.raises(
        UsageError, match=r"'pdf' is not a format. .*--format: tsv, jsonl, tmx, xliff, po, mo, csv, xlsx, lines"
    ):
        Corpus([write("a.tsv", "")], format="pdf")


@pytest.mark.parametrize(
    ("count", "format", "what"),
    [
        (0, None, "0 paths do not make a corpus."),
        (3, None, "3 paths do not make a corpus."),
        (2, "tsv", "2 paths do not make a corpus of format tsv."),
        (1, "lines", "1 path does not make a corpus of format lines."),
    ],
)
def test_a_wrong_number_of_paths_is_refused(write: Write, count: int, format: str | None, what: str) -> None:
    paths = [write(f"{n}.txt", "") for n in range(count)]
    with pytest.raises(UsageError) as error:
        Corpus(paths, format=format)
    assert str(error.value).startswith(what)
    assert "the source first" in str(error.value)


def test_two_files_that_contain_both_sides_are_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r"one ends as tmx, .* Give one tmx file at a time"):
        Corpus([write("a.tmx", ""), write("b.tmx.xz", "")])


def test_a_path_alone_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r"are a list. Write Corpus\(\['"):
        Corpus(write("a.tsv", ""))


def test_a_corpus_has_a_description(write: Write) -> None:
    path = write("a.tsv", "")
    corpus = Corpus([path], source_language="de-AT")
    assert corpus.description == f"tsv from {path}, de to en"
    assert repr(corpus) == f"<Corpus {corpus.description}>"
    assert Corpus(["-", path], format="lines").description == f"lines from standard input and {path}, de to en"


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize("format", [None, *WRITERS])
def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch, format: str | None) -> None:
    feed(monkeypatch, WRITERS[format or "tsv"]([("Haus", "house")]))
    corpus = Corpus(["-"], format=format)
    assert corpus.fraction() is None
    assert [(pair.source, pair.target, pair.origin) for pair in corpus] == [("Haus", "house", "-")]
    assert not sys.stdin.buffer.closed
    with pytest.raises(UsageError, match=r"Standard input can be read only once. Save it to a file"):
        iter(corpus)


def test_standard_input_can_be_one_of_two_aligned_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a", "1\n2\n")
    feed(monkeypatch, "x\ny\n")
    assert sides(Corpus([path, "-"])) == [("1", "x"), ("2", "y")]
    feed(monkeypatch, "x\n")
    with pytest.raises(TextError, match=r"standard input has 1 lines but .* has 2"):
        list(Corpus(["-", path]))


def test_standard_input_cannot_be_both_sides_or_mo() -> None:
    with pytest.raises(UsageError, match=r"Both files are standard input \('-'\)"):
        Corpus(["-", "-"])
    with pytest.raises(UsageError, match="mo cannot come from standard input, only tsv, jsonl, tmx, xliff, po"):
        Corpus(["-"], format="mo")


def test_errors_name_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, "a\n")
    with pytest.raises(TextError, match=r"^standard input, line 1: 1 column"):
        list(Corpus(["-"]))


def test_importing_the_package_is_light() -> None:
    heavy = {"lxml", "torch", "numpy", "transformers"}
    code = f"import sys, ibidem.text; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder: give the files in it"):
        Corpus([tmp_path])
