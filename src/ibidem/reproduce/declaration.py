"""Declarations: frozen dataclasses that define a row or a stage, and the digest that identifies them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def describe(declaration: Any) -> Any:
    """Convert a declaration with all its settings to plain JSON values; the key `is` holds the class name."""
    if is_dataclass(declaration) and not isinstance(declaration, type):
        settings = {field.name: describe(getattr(declaration, field.name)) for field in fields(declaration)}
        return {"is": type(declaration).__name__, **settings}
    if isinstance(declaration, list | tuple):
        return [describe(part) for part in declaration]
    if isinstance(declaration, float) and not math.isfinite(declaration):
        return str(declaration)  # JSON has no number for it
    return declaration


def digest(declaration: Any, *environment: object) -> str:
    """Hash the settings of a declaration that differ from their defaults.

    Settings at their defaults are left out, so that a setting added to the software later does not change the digest
    of what was measured before; `agrees` finds a default that has changed.

    Args:
        declaration: A frozen dataclass, or a nested sequence of them.
        environment: Further JSON values that the digest depends on, such as the model's fingerprint.

    Returns:
        16 hexadecimal digits.
    """
    plain = json.dumps([_distinct(declaration), *environment], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def agrees(stored: Any, declaration: Any) -> bool:
    """Return whether a stored description and a declaration agree in every setting that both have."""
    return _agree(stored, json.loads(json.dumps(describe(declaration))))


def _agree(stored: Any, now: Any) -> bool:
    if isinstance(stored, dict) and isinstance(now, dict):
        return all(_agree(stored[name], now[name]) for name in stored.keys() & now.keys())
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_agree, stored, now))
    return bool(stored == now)


def _distinct(declaration: Any) -> Any:
    if is_dataclass(declaration) and not isinstance(declaration, type):
        kept = {}
        for field in fields(declaration):
            value = getattr(declaration, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if default is MISSING or value != default:
                kept[field.name] = _distinct(value)
        return {"is": type(declaration).__name__, **kept}
    if isinstance(declaration, list | tuple):
        return [_distinct(part) for part in declaration]
    return declaration
