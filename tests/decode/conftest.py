from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from ibidem.model import BaseModel


def load_zoo() -> ModuleType:
    """tests/model/zoo.py, which no package holds together with this folder."""
    spec = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "model" / "zoo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ZOO = load_zoo()


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory, sentences: Sequence[Any]) -> Callable[[str], BaseModel]:
    """Return a function that makes the tiny model of a kind when it is first called for it."""
    texts = ZOO.Texts([s.german for s in sentences], [s.english for s in sentences])
    return cache(lambda kind: ZOO.load_kind(kind, tmp_path_factory.getbasetemp() / "zoo" / kind, texts))


@pytest.fixture(scope="session", params=ZOO.KINDS)
def any_model(request: pytest.FixtureRequest, model_of: Callable[[str], BaseModel]) -> BaseModel:
    return model_of(request.param)


@pytest.fixture(scope="session")
def short(sentences: Sequence[Any]) -> list[Any]:
    """Sentences of many lengths, none very long."""
    fitting = [s for s in sentences if len(s.german) < 60 and len(s.english) < 60]
    return fitting[:: max(1, len(fitting) // 12)]
