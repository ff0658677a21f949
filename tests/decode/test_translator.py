"""Text in, text out: one line for each, in order, whatever the lines are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.decode import SearchSettings, Translator
from ibidem.decode.splitting import split_text
from ibidem.errors import UsageError
from ibidem.model import BaseModel

from .oracle import limited

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


@pytest.fixture(scope="module")
def quick(tiny: BaseModel) -> Translator:
    return Translator(tiny, settings=limited(6, beam=1))


def test_order_is_kept(tiny: BaseModel, sentences: list[Any]) -> None:
    lines = [s.german for s in sentences[:40]]
    translator = Translator(tiny, settings=limited(12, beam=2), batch_size=7)
    group_size = translator.translate(lines)
    assert group_size == [translator.translate([line])[0] for line in lines]
    assert len(set(group_size)) > 5


def test_blank_lines_stay_blank(tiny: BaseModel, sentences: list[Any]) -> None:
    translator = Translator(tiny, settings=limited(12, beam=2))
    lines = ["", sentences[0].german, "  \t ", sentences[1].german, "\n"]
    found = translator.translate(lines)
    assert [found[0], found[2], found[4]] == ["", "", ""]
    assert [found[1], found[3]] == translator.translate([lines[1], lines[3]])


def test_odd_lines_get_one_answer_each(any_model: BaseModel) -> None:
    found = Translator(any_model, settings=limited(6)).translate(ODD)
    assert len(found) == len(ODD)
    assert all("\n" not in line and line.encode("utf-8") is not None for line in found)
    assert [found[i] for i, line in enumerate(ODD) if not line.strip()] == [""] * 3


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(st.characters(), max_size=30), max_size=6))
@example(["\ud800", "", "x"])
def test_any_text_gets_one_answer_each(quick: Translator, lines: list[str]) -> None:
    found = quick.translate(lines)
    assert len(found) == len(lines)
    for line, translation in zip(lines, found, strict=True):
        assert len(translation.splitlines()) <= 1
        assert line.strip() or translation == ""


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
def test_very_long_lines_are_cut_and_answered(quick: Translator, line: str) -> None:
    before = quick.work.sentences
    found = quick.translate([line, "kurz"])
    assert len(found) == 2
    assert quick.work.sentences - before > 6
    assert found[1] == quick.translate(["kurz"])[0]


@pytest.mark.parametrize("line", ["Der Hund läuft. " * 400, "wort " * 800, "x" * 3_000, "ab, cd; ef: " * 300])
@pytest.mark.parametrize("kind", ["marian", "nllb", "t5", "mbart"])
def test_the_parts_of_a_line_fit_and_hold_all_of_it(model_of, line: str, kind: str) -> None:
    tokens = model_of(kind).tokens

    def fits(text: str) -> bool:
        return len(tokens.encode_sources([text])[0]) <= tokens.longest_source

    parts = split_text(line, fits)
    assert all(fits(part) for part in parts)
    assert "".join("".join(parts).split()) == "".join(line.split())


def test_no_source_is_longer_than_a_piece(tiny: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder never sees more tokens at once than `piece_tokens`, and shorter lines are left as they are."""
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
    """The server decodes the pieces of a line in different batches, and relies on it."""
    translator = Translator(tiny, settings=limited(6, beam=1), piece_tokens=12)
    pieces = [piece.text for piece in translator.split([line])[0]]
    assert [[len(part) for part in translator.split([piece])] for piece in pieces] == [[1]] * len(pieces)
    assert " ".join(translator.translate(pieces)) == translator.translate([line])[0]


def test_piece_tokens_leave_room_for_text(tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="hold no text"):
        Translator(tiny, piece_tokens=1)
    whole = Translator(tiny, piece_tokens=None)
    assert max(len(piece.ids) for piece in whole.split(["wort " * 800])[0]) > 120


def test_split_text_tries_few_times() -> None:
    """Word by word, with every attempt of the length of a part, a long line would take seconds."""
    attempts: list[int] = []

    def fits(part: str) -> bool:
        attempts.append(len(part))
        return len(part) <= 400

    parts = split_text("wort " * 10_000, fits)
    assert all(len(part) <= 400 for part in parts)
    assert len(attempts) < 16 * len(parts)
    assert sum(attempts) < 40 * 50_000


def test_split_text_keeps_a_character_that_does_not_fit() -> None:
    assert split_text("ab c", lambda _: False) == ["a", "b", "c"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab .!?;:,–。\u3000\n"), max_size=200), st.integers(1, 20))
def test_split_text_keeps_every_character(text: str, most: int) -> None:
    parts = split_text(text, lambda part: len(part) <= most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts)


def test_split_text_prefers_ends_of_sentences() -> None:
    text = "Eins, zwei. Drei, vier. Fünf, sechs."
    assert split_text(text, lambda part: len(part) <= 24) == ["Eins, zwei. Drei, vier.", "Fünf, sechs."]
    assert split_text(text, lambda part: len(part) <= 12) == ["Eins, zwei.", "Drei, vier.", "Fünf, sechs."]
    assert split_text(text, lambda part: len(part) <= 6) == [
        "Eins,",
        "zwei.",
        "Drei,",
        "vier.",
        "Fünf,",
        "sechs.",
    ]
    assert split_text(text, lambda _: True) == [text]


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


def test_a_stream_answers_line_by_line(quick: Translator, sentences: list[Any]) -> None:
    lines = [s.german for s in sentences[:30]] + ["", " "]
    small = Translator(quick.model, settings=quick.settings, batch_size=1)
    assert list(small.translate_stream(iter(lines))) == quick.translate(lines)
    asked: list[str] = []

    def endless() -> Any:
        while True:
            asked.append("Datei öffnen")
            yield asked[-1]

    next(small.translate_stream(endless()))
    assert len(asked) <= 16


def test_n_best(tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=SearchSettings(beam=2, max_length_ratio=0, max_length_extra=8))
    best, long, blank = translator.alternatives(["Datei öffnen", "wort " * 300, ""], 5)
    assert len(best) == 5
    assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
    assert len(long) == 1
    assert blank == [("", 0)]


def test_work_is_counted(tiny: BaseModel, sentences: list[Any]) -> None:
    translator = Translator(tiny, settings=limited(8, beam=2))
    lines = [s.german for s in sentences[:5]]
    parts = translator.search(lines)
    assert translator.work.sentences == 5
    assert translator.work.tokens == sum(len(part[0][0].tokens) + 1 for part in parts)
    assert translator.work.seconds > 0


def test_a_batch_of_nothing_is_refused(tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="1 or more"):
        Translator(tiny, batch_size=0)


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("今天天气很好。我们去公园吧！好吗？", 8, ["今天天气很好。", "我们去公园吧！", "好吗？"]),
        ("今天天气很好。我们去公园吧！好吗？", 14, ["今天天气很好。我们去公园吧！", "好吗？"]),
        ("「行こう。」と言った。", 8, ["「行こう。」", "と言った。"]),
        ("苹果、香蕉，还有许多别的水果。", 9, ["苹果、香蕉，", "还有许多别的水果。"]),
    ],
)
def test_split_text_without_spaces(text: str, most: int, expected: list[str]) -> None:
    """Chinese and Japanese have no space after a full stop or a comma."""
    assert split_text(text, lambda part: len(part) <= most) == expected
