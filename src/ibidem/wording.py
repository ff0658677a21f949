"""Settings and reports as a person would write them."""

from __future__ import annotations

from collections.abc import Mapping


def join_words(value: object, limit: int | None = None) -> str:
    """A setting or a report in words: `none`, `yes`, `4,096`, `0.98`, `k 8, weight 0.7`; cut to `limit` characters."""
    match value:
        case None:
            text = "none"
        case bool():
            text = "yes" if value else "no"
        case int():
            text = f"{value:,}"
        case float():
            text = f"{value:.3g}"
        case Mapping():
            text = ", ".join(f"{name} {join_words(part, limit)}" for name, part in value.items()) or "none"
        case list() | tuple():
            text = "; ".join(join_words(part, limit) for part in value) or "none"
        case _:
            text = str(value)
    return text if limit is None or len(text) <= limit else f"{text[:limit]}…"
