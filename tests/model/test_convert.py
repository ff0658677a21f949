"""Conversion of pickled weights to safetensors."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from ibidem.errors import ModelError, UsageError
from ibidem.model import BaseModel, load_model
from ibidem.model.convert import convert, main

if TYPE_CHECKING:
    from pathlib import Path


def test_pickle_can_be_converted(pickled: Path, tiny: BaseModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model\.safetensors.*python -m ibidem\.model\.convert"):
        load_model(pickled, device="cpu")
    convert(str(pickled), tmp_path / "converted")
    assert not list((tmp_path / "converted").glob("*.bin"))
    converted = load_model(tmp_path / "converted", device="cpu")
    assert converted.fingerprint == tiny.fingerprint
    assert converted.tokenizer_fingerprint == tiny.tokenizer_fingerprint
    assert converted.banned == tiny.banned


def test_conversion_refuses_other_files(pickled: Path, tiny_folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(ModelError, match=r"no pytorch_model\.bin"):
        convert(str(tiny_folder), new)
    with pytest.raises(UsageError, match="exists already"):
        convert(str(pickled), tiny_folder)
    (pickled / "pytorch_model.bin").write_bytes(b"noise")
    with pytest.raises(ModelError, match="is damaged"):
        convert(str(pickled), new)
    torch.save({"weight": torch.zeros(1), "code": subprocess.Popen}, pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="may be code"):
        convert(str(pickled), new)
    assert not new.exists()


def test_conversion_command(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["convert", str(pickled / "nowhere"), str(tmp_path / "new")])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith(f"error: Cannot load the model '{pickled / 'nowhere'}'")
    assert err.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["convert", str(pickled), str(tmp_path / "new")])
    main()
    assert str(tmp_path / "new") in capsys.readouterr().out
    assert (tmp_path / "new" / "model.safetensors").is_file()
