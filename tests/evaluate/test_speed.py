from __future__ import annotations

import pytest

from ibidem.errors import UsageError
from ibidem.evaluate import Speed


def test_rates_divide_by_the_time() -> None:
    speed = Speed(sentences=30, tokens=450, seconds=1.5)

    assert speed.sentences_per_second == 20
    assert speed.tokens_per_second == 300


@pytest.mark.parametrize(
    ("sentences", "tokens", "seconds"),
    [(1, 1, 0.0), (1, 1, -2.0), (-1, 1, 1.0), (1, -1, 1.0), (1, 1, float("nan"))],
)
def test_no_measurement_is_refused(sentences: int, tokens: int, seconds: float) -> None:
    with pytest.raises(UsageError, match="is no measurement"):
        Speed(sentences, tokens, seconds)
