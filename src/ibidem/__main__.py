"""`python -m ibidem` is `ibidem`."""

from __future__ import annotations

from ibidem.cli import main

main()
