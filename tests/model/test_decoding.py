"""The positions of tokens in a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.model.decoding import Spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.model import BaseModel

    from .zoo import Texts


def test_tokens_cover_a_text_without_gap_or_overlap(any_model: BaseModel, texts: Texts) -> None:
    tokens = any_model.tokens
    for text in texts.english[::8]:
        ids = tokens.encode_targets([text])[0]
        spelt = tokens.decode(ids)
        places = tokens.spans(ids, spelt)
        spans = [places[i] for i in range(len(ids))]
        assert "".join(spelt[start:end] for start, end in spans) == "".join(spelt.split())
        assert spans[-1] == (len(spelt), len(spelt))


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example("… „Anführung“ ﬁn")
@example("")
@example("0 \x850")  # bytes whose first one is decoded as a replacement character
def test_spans_of_any_text_are_ordered(tiny: BaseModel, text: str) -> None:
    ids = tiny.tokens.encode_targets([text])[0]
    places = tiny.tokens.spans(ids, text)
    spans = [places[i] for i in range(len(ids))]
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


def test_spans_of_a_text_that_the_tokenizer_changes() -> None:
    """The tokenizer decodes … as three dots, one token each."""
    pieces = ["Wait", " ", ".", ".", ".", " no"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in ids)

    spans = Spans(decode, range(6), "Wait … no")
    assert [spans[i] for i in (0, 2, 3, 4, 5)] == [(0, 4), (5, 6), (5, 6), (5, 6), (7, 9)]
    plain = Spans(decode, range(6), "Wait ... no")
    assert [plain[i] for i in (0, 2, 3, 4, 5)] == [(0, 4), (5, 6), (6, 7), (7, 8), (9, 11)]


def test_first_bytes_of_a_character_have_empty_spans() -> None:
    euro = "a€b".encode()
    spans = Spans(lambda ids: bytes(euro[i] for i in ids).decode("utf-8", "replace"), range(5), "a€b")
    assert [spans[i] for i in range(5)] == [(0, 1), (1, 1), (1, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("text", ["Die Datei…", "«Titel» – ﬁn", "½ Tasse"])
def test_spans_of_normalised_text_refer_to_the_written_text(tiny: BaseModel, text: str) -> None:
    ids = tiny.tokens.encode_targets([text])[0]
    places = tiny.tokens.spans(ids, text)
    spans = [places[i] for i in range(len(ids))]
    marked = {place for start, end in spans for place in range(start, end)}
    assert {text[i] for i in set(range(len(text))) - marked} <= {" "}
    assert spans[0][0] == 0
