"""Texts and documents through a translator: one translation for each text, in order, whatever the texts are."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.combine import FixedCombiner
from ibidem.decode import BaseScorer, SearchSettings, Translator, translate_document
from ibidem.errors import TextError, UsageError
from ibidem.model import BaseModel
from ibidem.text import FillSettings

from .oracle import limited, write_memory

if TYPE_CHECKING:
    from pathlib import Path

ODD = [
    "</s>",
    "<pad> <unk>",
    ">>fr<< x",
    ">>fr<<",
    "\0",
    "a\0b",
    "👩‍👩‍👧 und 🏳️‍🌈",
    "\ud800",
    "a \udfff b\ud83d",
    "\u200b",
    "\ufeff",
    "\u202eabc",
    "e\u0301" * 30,
    "ﷺ" * 10,
    "a\u2028b\x85c\x0bd",
    "\t\n\r ",
    "",
    "   ",
    "漢字かな交じり文",
]


def find_breaks(text: str) -> list[str]:
    return re.findall("[\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029]", text)


@pytest.fixture(scope="module")
def quick(tiny: BaseModel) -> Translator:
    return Translator(tiny, settings=limited(6, beam=1))


def test_order_is_kept(tiny: BaseModel, sentences: list[Any]) -> None:
    lines = [s.german for s in sentences[:40]]
    translator = Translator(tiny, settings=limited(12, beam=2), batch_size=7)
    batched = translator.translate(lines)
    assert batched == [translator.translate([line])[0] for line in lines]
    assert len(set(batched)) > 5


def test_blank_lines_stay_blank(tiny: BaseModel, sentences: list[Any]) -> None:
    translator = Translator(tiny, settings=limited(12, beam=2))
    lines = ["", sentences[0].german, "  \t ", sentences[1].german, "\n"]
    found = translator.translate(lines)
    assert [found[0], found[2], found[4]] == ["", "  \t ", "\n"]
    assert [found[1], found[3]] == translator.translate([lines[1], lines[3]])


def test_odd_lines_get_one_translation_each(any_model: BaseModel) -> None:
    found = Translator(any_model, settings=limited(6)).translate(ODD)
    assert len(found) == len(ODD)
    assert all(line.encode("utf-8") is not None for line in found)
    for line, translation in zip(ODD, found, strict=True):
        assert find_breaks(translation) == find_breaks(line)
        assert line.strip() or translation == line


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(st.characters(), max_size=30), max_size=6))
@example(["\ud800", "", "x"])
def test_any_text_gets_one_answer_each(quick: Translator, lines: list[str]) -> None:
    found = quick.translate(lines)
    assert len(found) == len(lines)
    for line, translation in zip(lines, found, strict=True):
        assert find_breaks(translation) == find_breaks(line)
        assert line.strip() or translation == line


@pytest.mark.parametrize(
    "line",
    [
        "Der Hund läuft. " * 3_125,
        "wort " * 10_000,
        "x" * 50_000,
        "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz" * 80,
        "ß" * 5_000,
        "👩‍👩‍👧" * 1_000,
    ],
    ids=["sentences", "words", "no-spaces", "long-word", "letters", "emoji"],
)
def test_very_long_lines_are_split_and_translated(quick: Translator, line: str) -> None:
    before = quick.work.sentences
    found = quick.translate([line, "kurz"])
    assert len(found) == 2
    assert quick.work.sentences - before > 6
    assert found[1] == quick.translate(["kurz"])[0]


def test_no_source_is_longer_than_a_piece(tiny: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder never gets more source tokens than `piece_tokens`, and shorter lines are left as they are."""
    translator = Translator(tiny, settings=limited(6, beam=1), piece_tokens=20)
    seen: list[list[int]] = []
    start = BaseModel.start

    def record(model: BaseModel, sources: Any, beam: int = 1) -> Any:
        seen.extend(sources)
        return start(model, sources, beam)

    monkeypatch.setattr(BaseModel, "start", record)
    short = "Der Hund."
    translator.translate(["b='" * 300, "Der Hund läuft, und die Katze schläft. " * 20, short])
    assert max(map(len, seen)) <= 20
    assert sum(map(len, seen)) > 900
    assert tiny.tokens.encode_sources([short])[0] in seen


@settings(deadline=None, max_examples=40)
@given(st.text(st.sampled_from("ab ß.!,\u200b\u0001中"), min_size=30, max_size=120))
def test_pieces_by_themselves_are_translated_as_in_their_line(tiny: BaseModel, line: str) -> None:
    """The server relies on this: it decodes the pieces of a line in different batches."""
    translator = Translator(tiny, settings=limited(6, beam=1), piece_tokens=12)
    layout = translator.split([line])[0]
    pieces = [piece.text for piece in layout.pieces]
    off = Translator(tiny, settings=translator.settings, split="off", piece_tokens=12)
    assert [len(found.pieces) for found in off.split(pieces)] == [1] * len(pieces)
    assert layout.fill(off.translate(pieces))[0] == translator.translate([line])[0]


def test_invalid_piece_tokens_are_refused(tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="Invalid piece_tokens 1"):
        Translator(tiny, piece_tokens=1)
    whole = Translator(tiny, piece_tokens=None)
    assert max(len(piece.ids) for piece in whole.split(["wort " * 800])[0].pieces) > 120


def test_a_prefix_begins_the_translation(tiny: BaseModel, sentences: list[Any]) -> None:
    translator = Translator(tiny, settings=limited(8, beam=2))
    lines = [s.german for s in sentences[:6]]
    prefixes = ["", "The", "Open file", "", "Please enter", ""]
    found = translator.translate(lines, prefixes=prefixes)
    free = translator.translate(lines)
    for line, prefix, unforced in zip(found, prefixes, free, strict=True):
        assert line.startswith(prefix)
        assert prefix or line == unforced
    with pytest.raises(UsageError, match="6 texts but 1 prefixes"):
        translator.translate(lines, prefixes=["x"])


def test_a_stream_is_translated_line_by_line(quick: Translator, sentences: list[Any]) -> None:
    lines = [s.german for s in sentences[:30]] + ["", " "]
    small = Translator(quick.model, settings=quick.settings, batch_size=1)
    assert list(small.translate_stream(iter(lines))) == quick.translate(lines)
    read: list[str] = []

    def endless() -> Any:
        while True:
            read.append("Datei öffnen")
            yield read[-1]

    next(small.translate_stream(endless()))
    assert len(read) <= 16


def test_n_best(tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=SearchSettings(beam=2, max_length_ratio=0, max_length_extra=8))
    best, long, blank = translator.alternatives(["Datei öffnen", "wort " * 300, ""], 5)
    assert len(best) == 5
    assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
    layout = translator.split(["wort " * 300])[0]
    pieces = translator.alternatives([piece.text for piece in layout.pieces], 5)
    assert len(pieces) > 1
    for rank, (text, score) in enumerate(long):
        parts = [found[min(rank, len(found) - 1)] for found in pieces]
        assert text == layout.fill([part for part, _ in parts])[0]
        assert score == pytest.approx(sum(part for _, part in parts))
    assert len(long) == 5
    assert blank == [("", 0)]


def test_work_is_counted(tiny: BaseModel, sentences: list[Any]) -> None:
    translator = Translator(tiny, settings=limited(8, beam=2))
    lines = [s.german for s in sentences[:5]]
    parts = translator.search(translator.split(lines))
    assert translator.work.sentences == 5
    assert translator.work.tokens == sum(len(part[0][0].tokens) + 1 for part in parts)
    assert translator.work.seconds > 0


def test_an_invalid_batch_size_is_refused(tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="1 or more"):
        Translator(tiny, batch_size=0)


def test_another_scorer_for_one_call(tiny: BaseModel, sentences: list[Any], tmp_path: Path) -> None:
    """A scorer that is given to a call is used for that call only."""
    memory = write_memory(tiny, sentences[:20], tmp_path / "memory")
    lines = [s.german for s in sentences[:6]]
    combiner = FixedCombiner(4, 0.99, 1e-5)
    bare = Translator(tiny, settings=limited(12, beam=2))
    with_memory = Translator(tiny, memory, combiner=combiner, settings=limited(12, beam=2))
    own = with_memory.translate(lines)
    assert own != bare.translate(lines)
    assert with_memory.translate(lines, scorer=BaseScorer()) == bare.translate(lines)
    assert bare.translate(lines, scorer=with_memory.scorer) == own
    assert [best[0][0] for best in bare.alternatives(lines, 2, scorer=with_memory.scorer)] == own
    explained = bare.explain(lines, scorer=with_memory.scorer)
    assert [explanation.translation for explanation in explained] == own
    assert any(token.neighbours for token in explained[0].tokens)
    assert with_memory.translate(lines) == own
    assert isinstance(bare.scorer, BaseScorer)


class _Recorded:
    """Stands for `RecordedTranslations` over a translator that only translates."""

    def __init__(self, translator: Any) -> None:
        self.translate = translator.translate
        self.confidences: dict[str, float | None] = {}

    def __call__(self, lines: list[str]) -> list[str]:
        found: list[str] = self.translate(lines)
        return found


@pytest.fixture
def plain_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.decode.document_translation.RecordedTranslations", _Recorded)


def reverser(source: str | None = "deu_Latn", target: str | None = "eng_Latn", **more: Any) -> Any:
    """Make a translator that reverses the order of words."""
    model = SimpleNamespace(tokens=SimpleNamespace(source_language=source, target_language=target), name="turn")
    how = lambda texts: [" ".join(reversed(text.split())) for text in texts]  # noqa: E731
    return SimpleNamespace(model=model, **{"translate": how, **more})


@pytest.mark.usefixtures("plain_translations")
def test_a_document_is_written_to_a_file_or_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("eins zwei\nvier fünf\tx\n", "utf-8")
    stream = io.BytesIO()
    report = translate_document(reverser(), path, stream)
    assert stream.getvalue().decode() == "eins zwei\tzwei eins\nvier fünf\tx\n"
    assert (report.translated, report.kept) == (1, {"translated already": 1})
    translate_document(reverser(), path, path, settings=FillSettings(overwrite=True))
    assert path.read_text("utf-8") == "eins zwei\tzwei eins\nvier fünf\tfünf vier\n"


@pytest.mark.usefixtures("plain_translations")
def test_a_missing_folder_is_found_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("eins zwei", "utf-8")
    with pytest.raises(UsageError, match="there is no folder"):
        translate_document(reverser(translate=pytest.fail), path, tmp_path / "missing" / "a.tsv")


@pytest.mark.usefixtures("plain_translations")
def test_the_languages_of_a_document_must_be_the_models(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text('msgid ""\nmsgstr "Language: en_GB\\n"\n\nmsgid "eins zwei"\nmsgstr ""\n', "utf-8")
    stream = io.BytesIO()
    assert translate_document(reverser(), path, stream, mark_fuzzy=False).translated == 1
    assert b'msgstr "zwei eins"\n' in stream.getvalue()
    with pytest.raises(TextError, match=r"a\.po, line 1: its target language is 'en_GB', but the model's is 'de'"):
        translate_document(reverser("en", "de"), path, stream)
    with pytest.raises(UsageError, match="The model turn does not name its languages"):
        translate_document(reverser(None), path, stream)
