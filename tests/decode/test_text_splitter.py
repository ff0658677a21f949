"""Pieces are sentences, fit, and hold all of the text; the white space between them is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import FixedCombiner
from ibidem.decode import BaseScorer, SearchSettings, Translator
from ibidem.decode.text_splitter import (
    Piece,
    cut_text,
    find_pieces,
    find_usual_sentences,
    make_layout,
    split_texts,
)
from ibidem.errors import UsageError
from ibidem.glossary import Entry, Glossary
from ibidem.learn import MemoryWriter, create_memory
from ibidem.memory import SegmentData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ibidem.memory import Memory
    from ibidem.model import BaseModel

PARAGRAPHS = "  Die Datei ist leer.  Sie fehlt!\r\n\r\n\t• Am 3. Mai. \n\nEnde "
TEXTS = st.text(st.sampled_from('aB1 .!?…,;:–"„“()•\t\n\r\u2028\u3000。中ß\ud800😀'), max_size=120)


def cut(text: str, fits: Callable[[str], bool]) -> list[str]:
    return [text[start:end] for start, end in cut_text(text, (0, len(text)), fits)]


@pytest.mark.parametrize("line", ["Der Hund läuft. " * 400, "wort " * 800, "x" * 3_000, "ab, cd; ef: " * 300])
@pytest.mark.parametrize("kind", ["marian", "nllb", "t5", "mbart"])
def test_the_parts_of_a_line_fit_and_hold_all_of_it(model_of, line: str, kind: str) -> None:
    tokens = model_of(kind).tokens
    layout = split_texts([line], ["off"], tokens, tokens.max_source_length)[0]
    assert all(len(piece.ids) <= tokens.max_source_length for piece in layout.pieces)
    assert layout.fill([piece.text for piece in layout.pieces])[0] == line


def test_cutting_tries_few_times() -> None:
    """Word by word, with every attempt of the length of a part, a long line would take seconds."""
    attempts: list[int] = []

    def fits(part: str) -> bool:
        attempts.append(len(part))
        return len(part) <= 400

    parts = cut("wort " * 10_000, fits)
    assert all(len(part) <= 400 for part in parts)
    assert len(attempts) < 16 * len(parts)
    assert sum(attempts) < 40 * 50_000


def test_cutting_keeps_a_character_that_does_not_fit() -> None:
    assert cut("ab c", lambda _: False) == ["a", "b", "c"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab .!?;:,–。\u3000\n"), min_size=1, max_size=200), st.integers(1, 20))
def test_cutting_keeps_every_character(text: str, most: int) -> None:
    parts = cut(text, lambda part: len(part) <= most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts)


def test_cutting_prefers_ends_of_sentences() -> None:
    text = "Eins, zwei. Drei, vier. Fünf, sechs."
    assert cut(text, lambda part: len(part) <= 24) == ["Eins, zwei. Drei, vier.", "Fünf, sechs."]
    assert cut(text, lambda part: len(part) <= 12) == ["Eins, zwei.", "Drei, vier.", "Fünf, sechs."]
    assert cut(text, lambda part: len(part) <= 6) == ["Eins,", "zwei.", "Drei,", "vier.", "Fünf,", "sechs."]
    assert cut(text, lambda _: True) == [text]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("今天天气很好。我们去公园吧！好吗？", 8, ["今天天气很好。", "我们去公园吧！", "好吗？"]),
        ("今天天气很好。我们去公园吧！好吗？", 14, ["今天天气很好。我们去公园吧！", "好吗？"]),
        ("「行こう。」と言った。", 8, ["「行こう。」", "と言った。"]),
        ("苹果、香蕉，还有许多别的水果。", 9, ["苹果、香蕉，", "还有许多别的水果。"]),
    ],
)
def test_cutting_without_spaces(text: str, most: int, expected: list[str]) -> None:
    """Chinese and Japanese have no space after a full stop or a comma."""
    assert cut(text, lambda part: len(part) <= most) == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("sentences", ["Die Datei ist leer.", "Sie fehlt!", "• Am 3. Mai.", "Ende"]),
        ("nonewlines", ["Die Datei ist leer.", "Sie fehlt!", "• Am 3. Mai.", "Ende"]),
        ("off", [PARAGRAPHS.strip()]),
    ],
)
def test_the_ways_to_split(mode: Any, expected: list[str]) -> None:
    found = [PARAGRAPHS[start:end] for line in find_pieces(PARAGRAPHS, mode, "de") for start, end in line]
    assert found == expected


def test_line_breaks_are_boundaries_unless_they_are_ignored() -> None:
    text = "Die Datei\nist leer. Sie\tfehlt."
    assert [[text[slice(*span)] for span in line] for line in find_pieces(text, "sentences", "de")] == [
        ["Die Datei"],
        ["ist leer.", "Sie"],
        ["fehlt."],
    ]
    assert [[text[slice(*span)] for span in line] for line in find_pieces(text, "nonewlines", "de")] == [
        ["Die Datei\nist leer.", "Sie\tfehlt."]
    ]


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.sampled_from(["sentences", "nonewlines", "off"]), st.integers(2, 12))
def test_a_layout_filled_with_its_own_pieces_is_the_text(tiny: BaseModel, text: str, mode: Any, most: int) -> None:
    layout = split_texts([text], [mode], tiny.tokens, most)[0]
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    filled, starts = layout.fill([piece.text for piece in layout.pieces])
    assert filled == valid
    assert len(layout.gaps) == len(layout.pieces) + 1
    for piece, start in zip(layout.pieces, starts, strict=True):
        assert valid[start : start + len(piece.text)] == piece.text == piece.text.strip()
        assert mode != "sentences" or not re.search("[\n\r\t\u2028]", piece.text)


def test_translations_of_chinese_get_spaces_between_sentences() -> None:
    text = "今天天气很好。我们去公园吧！"
    layout = make_layout(text, [((0, 7), []), ((7, 14), [])])
    assert layout.pieces[0] == Piece("今天天气很好。", [])
    assert layout.fill(["It is fine.", "Let us go!"]) == ("It is fine. Let us go!", [0, 12])
    assert layout.fill(["天気がいい。", "行こう！"])[0] == "天気がいい。行こう！"


def test_white_space_of_a_text_is_in_its_translation(tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=SearchSettings(beam=1, max_length_ratio=0, max_length_extra=6))
    first, second, third, fourth = translator.translate(["Die Datei ist leer.", "Sie fehlt!", "• Am 3. Mai.", "Ende"])
    assert translator.translate([PARAGRAPHS]) == [f"  {first}  {second}\r\n\r\n\t{third} \n\n{fourth} "]
    translator.splitting = "off"
    assert translator.translate([PARAGRAPHS])[0] != f"  {first}  {second}\r\n\r\n\t{third} \n\n{fourth} "
    assert "\n" not in translator.translate([PARAGRAPHS])[0].strip()


def test_the_size_of_a_batch_does_not_change_translations(tiny: BaseModel, sentences: list[Any]) -> None:
    lines = [" ".join(s.german for s in sentences[first : first + 3]) for first in range(0, 30, 3)]
    settings = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=8)
    found = [Translator(tiny, settings=settings, batch_size=size).translate(lines) for size in (1, 4, 64)]
    assert found[0] == found[1] == found[2]


def test_an_unknown_way_to_split_is_refused(tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="sentences, nonewlines, off"):
        Translator(tiny, split="words")  # type: ignore[arg-type]


def test_a_text_with_a_prefix_is_not_split(tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=SearchSettings(beam=1, max_length_ratio=0, max_length_extra=6))
    layouts = translator.split(["Eins. Zwei.", "Eins. Zwei."], prefixes=["One. Two", " "])
    assert [len(layout.pieces) for layout in layouts] == [1, 2]


def test_a_stored_source_of_several_sentences_is_not_split(tiny: BaseModel, tmp_path: Path) -> None:
    """A pair that was learnt as a whole is found as a whole, also one that was added a moment ago."""
    source, target = "Die Datei fehlt. Legen Sie sie an.", "No file. Create it now."
    memory = create_memory(tmp_path / "memory", tiny)
    translator = Translator(tiny, memory, combiner=FixedCombiner(1, 0.999, 1e-4))
    assert [len(layout.pieces) for layout in translator.split([source])] == [2]
    writer = MemoryWriter(tmp_path / "memory", tiny)
    writer.add_pair(source, target)
    text = f"Hallo. Welt.\n {source.replace(' ', '  ')}\n"
    assert [piece.text for piece in translator.split([text])[0].pieces] == [
        "Hallo.",
        "Welt.",
        source.replace(" ", "  "),
    ]
    assert translator.translate([source]) == [target]
    assert translator.explain([source])[0].translation == target
    sealed = memory.sealed()
    assert not sealed.tail
    assert translator.translate([source]) == [target]
    writer.remove(sealed.find(source))
    assert [len(layout.pieces) for layout in translator.split([source])] == [2]


def store(folder: Path, model: BaseModel, pairs: int, **shares: int) -> Memory:
    """Make a memory of sources of one sentence, but of `two` and `three` sentences in so many places of a hundred."""
    sources = []
    for number in range(pairs):
        place = number * 37 % 100
        sentences = 3 if place < shares.get("three", 0) else 2 if place < sum(shares.values()) else 1
        sources.append(" ".join([f"Quelle {number} fehlt."] * sentences))
    memory = create_memory(folder, model)
    data = SegmentData(
        keys=np.zeros((pairs, model.dimension), np.float16),
        values=np.full(pairs, 5, np.int32),
        log_probs=np.zeros(pairs, np.float32),
        lengths=np.ones(pairs, np.int64),
        sources=sources,
        targets=["missing"] * pairs,
        origins=["test.tsv"] * pairs,
        locations=list(range(pairs)),
    )
    with memory.edit() as edit:
        edit.append_segment(data)
        return edit.commit()


def pieces_of(text: str, model: BaseModel, memories: Sequence[Memory], mode: Any = "sentences") -> list[str]:
    return [piece.text for piece in split_texts([text], [mode], model.tokens, 128, memories)[0].pieces]


@pytest.mark.parametrize(
    ("pairs", "shares", "usual"),
    [
        (1_000, {"two": 10}, 2),
        (1_000, {"two": 9}, 1),
        (999, {"two": 90}, 1),
        (1_000, {"three": 10, "two": 1}, 3),
        (1_000, {"three": 9, "two": 1}, 2),
    ],
)
def test_short_lines_stay_whole_where_as_many_sentences_are_usual(
    tiny: BaseModel, tmp_path: Path, pairs: int, shares: dict[str, int], usual: int
) -> None:
    memory = store(tmp_path / "memory", tiny, pairs, **shares)
    assert find_usual_sentences([memory]) == usual
    for count in (2, 3, 4):
        line = " ".join(["Die Datei ist leer."] * count)
        assert len(pieces_of(line, tiny, [memory])) == (1 if count <= usual else count)


def test_only_lines_of_few_tokens_stay_whole(tiny: BaseModel, tmp_path: Path) -> None:
    memory = store(tmp_path / "memory", tiny, 1_000, two=50)
    lengths = {}
    for words in range(1, 25):
        first, second = f"Die {'leere ' * words}Datei.", "Sie fehlt."
        found = pieces_of(f"{first} {second}", tiny, [memory])
        assert found in ([f"{first} {second}"], [first, second])
        lengths[len(tiny.tokens.encode_sources([f"{first} {second}"])[0])] = len(found)
    assert (
        {length for length, found in lengths.items() if found == 1} == {n for n in lengths if n <= 35} != set(lengths)
    )


def test_a_line_is_judged_alone_and_its_white_space_kept(tiny: BaseModel, tmp_path: Path) -> None:
    memory = store(tmp_path / "memory", tiny, 1_000, two=50)
    text = "Eins.  Zwei.\n\n Eins. Zwei. Drei.\tVier. "
    assert pieces_of(text, tiny, [memory]) == ["Eins.  Zwei.", "Eins.", "Zwei.", "Drei.", "Vier."]
    layout = split_texts([text], ["sentences"], tiny.tokens, 128, [memory])[0]
    assert layout.fill([piece.text for piece in layout.pieces])[0] == text
    # A piece that is split again, as clients of /segments do, stays one piece.
    for piece in layout.pieces:
        assert pieces_of(piece.text, tiny, [memory]) == [piece.text]
    assert pieces_of("Eins.\nZwei.", tiny, [memory], "nonewlines") == ["Eins.\nZwei."]
    assert pieces_of("Eins. Zwei.", tiny, []) == ["Eins.", "Zwei."]


def test_several_memories_count_as_one(tiny: BaseModel, tmp_path: Path) -> None:
    """Of 1,200 and 800 sources, 0 % and 20 % are 8 %, 0 % and 30 % are 12 %."""
    single = store(tmp_path / "single", tiny, 1_200)
    fifth, third = (store(tmp_path / str(share), tiny, 800, two=share) for share in (20, 30))
    assert [find_usual_sentences(found) for found in ([single, fifth], [third, single], [third], [])] == [1, 2, 1, 1]


def test_a_line_like_a_stored_source_of_as_many_sentences_is_not_split(tiny: BaseModel, tmp_path: Path) -> None:
    stored = "Die Datei fehlt auf dem Server. Legen Sie sie bitte an. "
    memory = create_memory(tmp_path / "memory", tiny)
    translator = Translator(tiny, memory)
    writer = MemoryWriter(tmp_path / "memory", tiny)
    writer.add_pair(stored.strip(), "No file. Create it.")
    near, far = stored.replace("Datei", "Seite"), stored.replace("Datei fehlt auf dem Server", "Sonne scheint ja")
    sealed = memory.sealed()
    assert [len(layout.pieces) for layout in translator.split([near, far, f"{near} Ja.", f"{near}\n{far}"])] == [
        1,
        2,
        3,
        3,
    ]
    writer.remove(sealed.find(stored.strip()))
    assert [len(layout.pieces) for layout in translator.split([near])] == [2]


def test_the_translator_follows_the_rule(tiny: BaseModel, tmp_path: Path) -> None:
    """With the memory a usual line is one piece, for the base model alone two, and always two where it is unusual."""
    memory = store(tmp_path / "memory", tiny, 1_000, two=50)
    settings = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=6)
    translator = Translator(tiny, memory, settings=settings, combiner=FixedCombiner(1, 1e-6, 1.0))
    lines = ["Die Datei ist leer. Sie fehlt.", "Ende", "Die Datei ist leer. Sie fehlt. Ende."]
    assert [len(layout.pieces) for layout in translator.split(lines)] == [1, 1, 3]
    assert [len(layout.pieces) for layout in translator.split(lines, scorer=BaseScorer())] == [2, 1, 3]
    alone = [translator.translate([line])[0] for line in lines]
    assert translator.translate(lines) == alone
    translator.splitting = "off"
    assert translator.translate(lines[:1]) == alone[:1]


def test_a_whole_line_gets_its_terms(tiny: BaseModel, tmp_path: Path) -> None:
    """Both sentences are searched for terms, and the explanation covers the whole translation."""
    memory = store(tmp_path / "memory", tiny, 1_000, two=50)
    settings = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=12)
    translator = Translator(tiny, memory, settings=settings, combiner=FixedCombiner(1, 1e-6, 1.0))
    terms = Glossary("g", "de", "en", [Entry("Datei", ("folder",)), Entry("Hund", ("cat",))])
    line = "Die Datei ist leer. Der Hund läuft."
    assert [piece.text for piece in translator.split([line])[0].pieces] == [line]
    found = translator.translate([line], glossary=terms)[0]
    assert ("folder" in found, "cat" in found) == (True, True)
    assert translator.explain([line])[0].translation == translator.translate([line])[0]
