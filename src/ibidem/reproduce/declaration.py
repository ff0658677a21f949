"""Declarations: frozen dataclasses that say what is to be made or measured, and a digest to find them again by."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def describe(thing: Any) -> Any:
    """A declaration with all its settings, as JSON can hold it; `is` names its class."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {"is": type(thing).__name__, **{f.name: describe(getattr(thing, f.name)) for f in fields(thing)}}
    if isinstance(thing, list | tuple):
        return [describe(part) for part in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return str(thing)  # JSON has no number for it
    return thing


def digest(thing: Any, *environment: object) -> str:
    """What a declaration is found by: a digest of what differs from the defaults, and of its environment.

    Settings that stand at their defaults are left out, so that a setting added to the software later does not
    orphan what was measured before it; `agrees` notices a default that has changed since.
    """
    plain = json.dumps([_distinct(thing), *environment], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def agrees(stored: Any, thing: Any) -> bool:
    """Whether a stored description says nothing else than the declaration does; settings only one has are passed."""
    return _agree(stored, json.loads(json.dumps(describe(thing))))


def _agree(stored: Any, now: Any) -> bool:
    if isinstance(stored, dict) and isinstance(now, dict):
        return all(_agree(stored[name], now[name]) for name in stored.keys() & now.keys())
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_agree, stored, now))
    return bool(stored == now)


def _distinct(thing: Any) -> Any:
    if is_dataclass(thing) and not isinstance(thing, type):
        kept = {}
        for field in fields(thing):
            value = getattr(thing, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if default is MISSING or value != default:
                kept[field.name] = _distinct(value)
        return {"is": type(thing).__name__, **kept}
    if isinstance(thing, list | tuple):
        return [_distinct(part) for part in thing]
    return thing
