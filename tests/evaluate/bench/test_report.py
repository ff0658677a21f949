"""Settings of a benchmark are checked."""

from __future__ import annotations

import pytest

from ibidem.errors import UsageError
from ibidem.evaluate.bench import BenchSettings


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(UsageError, match="Unknown system 'marian'"):
        BenchSettings(against=("marian",))
    with pytest.raises(UsageError, match="Invalid batches"):
        BenchSettings(batches=(0,))
