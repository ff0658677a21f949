"""Fixtures: tiny models of every architecture."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from .zoo import KINDS, Texts, load_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.model import BaseModel


@pytest.fixture(scope="session")
def texts(sentences: Sequence[Any]) -> Texts:
    return Texts([s.german for s in sentences], [s.english for s in sentences])


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory, texts: Texts) -> Callable[[str], BaseModel]:
    """The tiny model of a kind, made at the first call."""
    return cache(lambda kind: load_kind(kind, tmp_path_factory.getbasetemp() / "zoo" / kind, texts))


@pytest.fixture(scope="session", params=KINDS)
def any_model(request: pytest.FixtureRequest, model_of: Callable[[str], BaseModel]) -> BaseModel:
    return model_of(request.param)


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of a Marian folder, which tests damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


@pytest.fixture
def pickled(tiny_folder: Path, tmp_path: Path) -> Path:
    """A Marian folder whose only weights are a pickle, as many on the hub."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder
