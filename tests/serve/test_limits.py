"""Settings of a server, and the front of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ibidem.serve
from ibidem.errors import UsageError
from ibidem.serve import Limits

_IMPORT_SETTINGS = """
import sys
from ibidem.serve import Limits, ServeSettings, add_key, hash_key, read_keys
print(sorted({"fastapi", "starlette", "uvicorn", "torch", "prometheus_client"} & set(sys.modules)))
"""


def test_limits_must_be_positive() -> None:
    with pytest.raises(UsageError, match="characters"):
        Limits(characters=0)


def test_settings_and_keys_are_imported_without_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORT_SETTINGS], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_all_names_of_the_front_exist() -> None:
    assert all(getattr(ibidem.serve, name) is not None for name in ibidem.serve.__all__)
    with pytest.raises(AttributeError, match="unknown_name"):
        _ = ibidem.serve.unknown_name
