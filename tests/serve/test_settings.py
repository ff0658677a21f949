"""Settings of a server."""

from __future__ import annotations

import pytest

from ibidem.errors import UsageError
from ibidem.serve import Limits


def test_limits_must_be_positive() -> None:
    with pytest.raises(UsageError, match="characters"):
        Limits(characters=0)
