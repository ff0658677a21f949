"""Schemas of requests."""

from __future__ import annotations

import pytest


def test_a_list_of_invalid_items_has_one_error() -> None:
    """An error for each item would be slow for a large body."""
    from pydantic import ValidationError

    from ibidem.serve import schemas

    wrong = [None] * 1_000
    for model, fields in (
        (schemas.TranslateRequest, {"q": wrong}),
        (schemas.TranslateRequest, {"q": "a", "memories": wrong}),
        (schemas.TranslateRequest, {"q": "a", "memories": {str(number): "x" for number in range(2_000)}}),
        (schemas.DeeplRequest, {"text": wrong, "target_lang": "EN"}),
        (schemas.AddRequest, {"pairs": wrong}),
        (schemas.RemoveRequest, {"ids": wrong}),
    ):
        with pytest.raises(ValidationError) as caught:
            model.model_validate(fields, strict=True)
        assert caught.value.error_count() < 5
