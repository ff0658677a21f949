"""Options of a request: memories and languages."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.serve.http_error import HttpError
from ibidem.serve.request_options import check_languages, choose_memories

AVAILABLE = {"mine": 1.0, "other": 2.0, "a:3": 1.0}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, (("mine", 1.0), ("other", 2.0), ("a:3", 1.0))),
        ([], ()),
        (["none"], ()),
        (["other", "mine"], (("mine", 1.0), ("other", 2.0))),
        (["other:0.5"], (("other", 0.5),)),
        (["a:3"], (("a:3", 1.0),)),
        ({"other": 1, "mine": 3.0}, (("mine", 3.0), ("other", 1.0))),
    ],
)
def test_selected_memories_have_the_order_of_the_server(given: Any, expected: Any) -> None:
    assert choose_memories(given, AVAILABLE, 3) == expected


@pytest.mark.parametrize("given", [["third"], ["mine:x"], ["mine:0"], ["mine:nan"], {"mine": -1.0}, ["mine"] * 4])
def test_invalid_selections_are_refused(given: Any) -> None:
    with pytest.raises(HttpError) as caught:
        choose_memories(given, AVAILABLE, 3)
    assert caught.value.status == 400


def test_languages_are_compared_without_their_region() -> None:
    for source, target in ((None, None), ("auto", ""), ("DE", "en-GB"), ("de_CH", "EN")):
        check_languages(("de", "en"), source, target)
    for source, target in (("fr", "en"), ("de", "fr"), ("en", "de")):
        with pytest.raises(HttpError, match="is not supported"):
            check_languages(("de", "en"), source, target)
