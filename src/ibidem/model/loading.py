"""Loading a base model by name or folder."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import torch

from ibidem.errors import UsageError
from ibidem.model.base import BaseModel
from ibidem.model.fingerprint import fingerprint_network
from ibidem.model.lean import supports_lean
from ibidem.model.linear import supports_int8
from ibidem.model.native import supports_native
from ibidem.model.pretrained import load_pretrained
from ibidem.model.tokens import Tokens

SHIPPED = "ibidem-base-de-en"
AUTO = "auto"
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.float32}


def load_model(
    name: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "float32",
    source_language: str | None = None,
    target_language: str | None = None,
    source_prefix: str = "",
) -> BaseModel:
    """Load a folder, a name on the Hugging Face hub, or (None) the shipped German-English model.

    `source_language` and `target_language` are needed by multilingual models only (M2M100, NLLB, mBART); a language
    that a model does not have is refused. Of a model that does not state its languages (T5, BART) they are taken as
    given: they tell how files are read, and do not change translations. `source_prefix` is put before every source
    (T5's "translate German to English: "). With the dtype "int8" a CPU translates with int8 products, and learns with
    them where our own library has them, else in float32; it takes a Marian or FSMT model. "auto" is int8 where that
    can be had, else float32.
    """
    chosen = SHIPPED if name is None else str(name)
    if Path(chosen).exists():
        chosen = str(Path(chosen).resolve())  # a memory must find its model from any working folder
    folder = _shipped_folder() if chosen == SHIPPED else Path(chosen) if Path(chosen).exists() else None
    place = resolve_device(device)
    if dtype not in (*_DTYPES, AUTO):
        raise UsageError(f"Unknown dtype '{dtype}': use one of {AUTO}, {', '.join(_DTYPES)}.")
    network, tokenizer = load_pretrained(chosen, folder)
    if dtype == AUTO:
        dtype = "float32" if _why_no_int8(network, chosen, place) else "int8"
    tokens = Tokens(
        tokenizer,
        network.config,
        network.generation_config,
        source_language=source_language,
        target_language=target_language,
        source_prefix=source_prefix,
        name=chosen,
    )
    # Rounded weights are still the same model: its fingerprint is taken before they are rounded.
    fingerprint = fingerprint_network(network) if _DTYPES[dtype] != torch.float32 else None
    if dtype == "int8" and (reason := _why_no_int8(network, chosen, place)):
        raise UsageError(reason)
    return BaseModel(chosen, network.to(place, _DTYPES[dtype]), tokens, fingerprint, int8=dtype == "int8")


def _why_no_int8(network: Any, name: str, place: torch.device) -> str | None:
    """What keeps this model from translating in int8 there, in words; None where nothing does."""
    if place.type != "cpu":
        return f"int8 is for the CPU, not for '{place}': use --dtype float16 there."
    if not supports_lean(network):
        return f"{name} is a {type(network).__name__}, and int8 takes Marian and FSMT: use --dtype float32."
    if not (supports_native(network) or supports_int8()):
        return "Neither PyTorch nor our own library has int8 products for this CPU: use --dtype float32."
    return None


def resolve_device(device: str) -> torch.device:
    """`auto` is a CUDA device where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise UsageError(f"Unknown device '{device}': use auto, cpu, cuda or cuda:N.") from None
    if place.type not in ("cpu", "cuda"):
        raise UsageError(f"ibidem runs on cpu and cuda, not on '{device}': use one of these.")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"There is no device '{device}' here that torch can use: use --device cpu.")
    return place


def _shipped_folder() -> Path:
    return Path(str(resources.files("ibidem.model") / "shipped" / SHIPPED))
