"""Every build of the native library that this machine can run, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.native import native
from ibidem.native.library import BUILDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=BUILDS)
def build(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IBIDEM_NATIVE", request.param)
        native.cache_clear()
        if native() is None:
            pytest.skip(f"no native library for {request.param} here")
        yield request.param
    native.cache_clear()
