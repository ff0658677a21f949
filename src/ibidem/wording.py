"""Settings, reports and options as text."""

from __future__ import annotations

from collections.abc import Mapping

# Options of other commands that `ibidem learn` takes as settings.
_LEARN_SETTINGS = {
    "--dtype": "model.dtype",
    "--source-prefix": "model.source_prefix",
    "--catalogue-language": "text.catalogue_language",
    "--encoding": "text.encoding",
}


def describe_option(option: str, value: str) -> str:
    """Write an option with a value, in a form for every command that has it.

    Args:
        option: `--dtype`, `--source-prefix`, `--catalogue-language` or `--encoding`, which are settings in
            `ibidem learn`.
        value: The value to recommend, or a placeholder such as `TEXT`.

    Examples:
        >>> describe_option("--dtype", "float32")
        '--dtype float32 (for `ibidem learn`: --set model.dtype=float32)'
    """
    return f"{option} {value} (for `ibidem learn`: --set {_LEARN_SETTINGS[option]}={value})"


def describe_value(value: object, limit: int | None = None) -> str:
    """Convert a setting or a report to text.

    Args:
        value: A scalar, a mapping or a list of such values.
        limit: The largest number of characters of each part; longer text ends in "…". None: no limit.

    Returns:
        `none`, `yes`, `4,096`, `0.98`, or the parts of a mapping or list one after the other.

    Examples:
        >>> describe_value({"k": 8, "weight": 0.7, "tuned": True})
        'k 8, weight 0.7, tuned yes'
    """
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
            text = ", ".join(f"{name} {describe_value(part, limit)}" for name, part in value.items()) or "none"
        case list() | tuple():
            text = "; ".join(describe_value(part, limit) for part in value) or "none"
        case _:
            text = str(value)
    return text if limit is None or len(text) <= limit else f"{text[:limit]}…"
