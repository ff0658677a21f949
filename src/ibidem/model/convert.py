"""Conversion of pickled weights to safetensors: `python -m ibidem.model.convert MODEL FOLDER`.

This is the only module of ibidem that reads a pickle of another author. PyTorch's restricted unpickler
(`weights_only=True`) accepts tensors and plain containers alone, but it is less safe than a format without code.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ibidem.errors import IbidemError, ModelError, UsageError
from ibidem.model.loading import build, fetch, load_config, raise_model_error, read_shards, save_folder

if TYPE_CHECKING:
    from torch import Tensor

_PICKLE = "pytorch_model.bin"
_INDEX = "pytorch_model.bin.index.json"


def convert(name: str, target: Path) -> None:
    """Write a model to a new folder with its weights as safetensors.

    Args:
        name: A model folder, or a name on the Hugging Face hub.
        target: The new folder.

    Raises:
        ModelError: The model has no pickled weights, or the pickle contains other objects than weights.
        UsageError: The target exists already.
    """
    if target.exists():
        raise UsageError(f"{target} exists already: name a new folder.")
    with raise_model_error(name):
        folder = Path(name) if Path(name).exists() else fetch(name, ["pytorch_model*.bin"])
        network = build(load_config(folder, name), _read_pickles(folder, name), folder)
        save_folder(network, folder, target, omitted=[_INDEX])


def _read_pickles(folder: Path, name: str) -> dict[str, Tensor]:
    if (folder / _PICKLE).is_file():
        files = [folder / _PICKLE]
    elif (folder / _INDEX).is_file():
        files = read_shards(folder, _INDEX, ".bin")
    else:
        raise ModelError(f"{name} has no {_PICKLE} to convert: give the folder or the hub name of a model with one.")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights.update(torch.load(file, map_location="cpu", weights_only=True))
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ModelError(
                f"{file} is damaged, or contains other objects than weights, which may be code: get the model from "
                "another source."
            ) from error
    return weights


def main() -> None:
    """Run the conversion that the arguments of the process name."""
    parser = argparse.ArgumentParser(
        prog="python -m ibidem.model.convert",
        description="Write a model to a new folder with its weights as safetensors.",
    )
    parser.add_argument("model", help="folder or hub name of the model")
    parser.add_argument("folder", type=Path, help="new folder for the converted model")
    given = parser.parse_args()
    try:
        convert(given.model, given.folder)
    except IbidemError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"{given.folder} is ready: ibidem translate --model {given.folder}")


if __name__ == "__main__":
    main()
