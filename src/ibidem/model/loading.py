"""Loading of a base model from a folder, from the Hugging Face hub, or from the package.

Only safetensors are read, and no code that comes with a model is run.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ibidem.errors import IbidemError, ModelError, UsageError
from ibidem.model.base import BaseModel, fingerprint_network
from ibidem.model.fast_marian import supports_fast_marian
from ibidem.model.linear import supports_int8
from ibidem.model.marian import read_marian
from ibidem.model.native_engine import supports_native
from ibidem.model.registry import SHIPPED, choose_model, describe_pairs, find_model, known_models, shipped_folder
from ibidem.model.tokens import Tokens
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKED_FILE = "model.int8.safetensors"
PLAIN_FILE = "model.safetensors"
_ROWS, _SCALES = ".int8", ".scale"
_INDEX_FILE = "model.safetensors.index.json"
# No Python files, pickles, adapters or chat templates are downloaded.
_FETCHED = ("*.json", "*.txt", "*.model", "*.spm", PLAIN_FILE, "model-*.safetensors", PACKED_FILE)
_NOT_FETCHED = ("*/*", "adapter_*")
# Endings of the files that a changed model has in common with the original one.
_COPIED = (".json", ".txt", ".model", ".spm")
_USABLE = "use a Marian, FSMT, M2M100, NLLB, BART, mBART or T5 model."
# The folder of a model that holds its general compactor, source projection and combiner.
GENERAL_FOLDER = "general"
# A folder without one of these counts as absent: memories then get a compactor and a combiner of their own.
GENERAL_FILES = ("compactor.safetensors", "source_projection.safetensors", "combiner.safetensors")
AUTO = "auto"
# transformers changes its own and torch's functions while it builds a network: for all threads.
_BUILDING = threading.Lock()
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
    """Load a base model.

    Args:
        name: A model folder, the name of a known model (`ibidem model list`), a name on the Hugging Face hub, or None
            for the first known model of the given languages; without languages, the German-English model of this
            package.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        dtype: "float32", "float16", "bfloat16", "int8", or "auto": int8 where it is possible, else float32. int8 is for
            Marian and FSMT models on a CPU; without the native library, learning uses float32 then.
        source_language: The source language. Multilingual models (M2M100, NLLB, mBART) require it. For a model that
            does not state its languages (T5, BART) it only determines how files are read.
        target_language: The target language, in the same way.
        source_prefix: Text before every source, such as T5's "translate German to English: ".

    Raises:
        ModelError: The model cannot be loaded, or lacks one of the languages.
        UsageError: Invalid device, dtype or language.

    Examples:
        >>> from ibidem.model import load_model
        >>> model = load_model(device="cpu")
        >>> model.name, model.tokens.source_language, model.tokens.target_language
        ('ibidem-base-de-en', 'de', 'en')
        >>> model.dimension
        512
    """
    chosen, source_language, target_language, source_prefix = _choose(
        name, source_language, target_language, source_prefix
    )
    folder = shipped_folder(chosen) or (Path(chosen) if _exists(chosen) else None)
    torch_device = resolve_device(device)
    if dtype not in (*_DTYPES, AUTO):
        raise UsageError(f"Unknown dtype '{dtype}': use one of {AUTO}, {', '.join(_DTYPES)}.")
    network, tokenizer = _load_network(chosen, folder)
    if dtype == AUTO:
        dtype = "float32" if _int8_obstacle(network, chosen, torch_device) else "int8"
    tokens = Tokens(
        tokenizer,
        network.config,
        network.generation_config,
        source_language=source_language,
        target_language=target_language,
        source_prefix=source_prefix,
        name=chosen,
    )
    # The fingerprint is that of the original weights, so that a memory fits the model in any dtype.
    fingerprint = fingerprint_network(network) if _DTYPES[dtype] != torch.float32 else None
    if dtype == "int8" and (reason := _int8_obstacle(network, chosen, torch_device)):
        raise UsageError(reason)
    general = None if folder is None else folder / GENERAL_FOLDER
    complete = general is not None and all((general / file).is_file() for file in GENERAL_FILES)
    return BaseModel(
        chosen,
        network.to(torch_device, _DTYPES[dtype]),
        tokens,
        fingerprint,
        int8=dtype == "int8",
        general=general if complete else None,
    )


def _choose(
    name: str | Path | None, source: str | None, target: str | None, prefix: str
) -> tuple[str, str | None, str | None, str]:
    """Return the name to load, which a memory stores, with the languages and the prefix of a known model."""
    if name is not None and _exists(name):
        # A memory may be opened from another working folder.
        return str(Path(name).resolve()), source, target, prefix
    if name is not None:
        known = find_model(str(name))
    elif source is None and target is None:
        known = None
    else:
        known = choose_model(source, target)
        if known is None and len(models := known_models()) > 1:
            asked = " ".join(f"{side} {tag}" for side, tag in (("from", source), ("to", target)) if tag is not None)
            raise UsageError(
                f"No known model translates {asked}; there are models from {describe_pairs(models)}: choose another "
                "with --model, or add one with `ibidem model add`."
            )
    if known is None:
        return SHIPPED if name is None else str(name), source, target, prefix
    if known.shipped:
        return known.location, source, target, prefix
    return (
        known.location,
        source or known.source_language or None,
        target or known.target_language or None,
        prefix or known.source_prefix,
    )


def _exists(name: str | Path) -> bool:
    """Return whether a name is that of a folder; raises ModelError if this cannot be found out."""
    try:
        return Path(name).exists()
    except OSError as error:
        raise ModelError(
            f"Cannot open the model '{str(name)[:80]}' ({error.strerror}): check the path and its permissions."
        ) from error


def resolve_device(device: str) -> torch.device:
    """Return the torch device of a name.

    Args:
        device: "auto" (a GPU if there is one, else the CPU), "cpu", "cuda" or "cuda:N".

    Raises:
        UsageError: Unknown or unavailable device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch_device = torch.device(device)
    except RuntimeError:
        raise UsageError(f"Unknown device '{device}': use auto, cpu, cuda or cuda:N.") from None
    if torch_device.type not in ("cpu", "cuda"):
        raise UsageError(f"ibidem runs on cpu and cuda, not on '{device}': use one of these.")
    if torch_device.type == "cuda" and (torch_device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"The device '{device}' is not available to torch on this machine: use --device cpu.")
    return torch_device


def _int8_obstacle(network: Any, name: str, torch_device: torch.device) -> str | None:
    """Return the reason why a model cannot use int8 on a device; None if it can."""
    if torch_device.type != "cpu":
        return f"int8 is for the CPU, not for '{torch_device}': use {describe_option('--dtype', 'float16')}."
    if not supports_fast_marian(network):
        return (
            f"{name} is a {type(network).__name__}, and int8 requires a Marian or FSMT model: "
            f"use {describe_option('--dtype', 'float32')}."
        )
    if not (supports_native(network) or supports_int8()):
        return (
            "Neither PyTorch nor the native library has int8 products for this CPU: "
            f"use {describe_option('--dtype', 'float32')}."
        )
    return None


def find_folder(name: str) -> Path:
    """Return the folder of a model; a model of the hub is downloaded, or found in the cache.

    Args:
        name: The name of a loaded model: that of the shipped one, an absolute path, or a name on the hub.

    Raises:
        ModelError: The model cannot be found.
    """
    if (folder := shipped_folder(name)) is not None:
        return folder
    if _exists(name):
        return Path(name)
    with raise_model_error(name):
        return fetch(name)


def save_folder(network: Any, source: Path, target: Path, omitted: Sequence[str] = ()) -> None:
    """Write a network to a new folder, with the tokenizer and all other settings of the folder that it came from.

    Args:
        network: A transformers model.
        source: The folder that the network was loaded from.
        target: The new folder.
        omitted: Names of files that are not copied.
    """
    network.save_pretrained(target)
    for weights in target.glob("*.safetensors"):
        weights.chmod(0o644)  # safetensors creates files that only their owner can read
    for file in sorted(source.iterdir()):
        if file.suffix in _COPIED and file.name not in omitted and not (target / file.name).exists():
            shutil.copyfile(file, target / file.name)


def _load_network(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Load a network and its tokenizer, without transformers where it is not needed."""
    if folder is not None:
        found = read_marian(folder, lambda: _read_weights(folder, name), lambda: load_pretrained(name, folder))
        if found is not None:
            return found
    return load_pretrained(name, folder)


def load_pretrained(name: str, folder: Path | None = None) -> tuple[Any, Any]:
    """Load a network and its tokenizer.

    Args:
        name: The name of the model, for the hub and for messages.
        folder: The model folder; None downloads the model from the hub.

    Returns:
        The transformers network in float32, and the tokenizer.

    Raises:
        ModelError: The model cannot be loaded; the message names the model and the remedy.
    """
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # The tokenizer warns about long lines, which ibidem splits itself.
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
    with raise_model_error(name):
        folder = fetch(name) if folder is None else folder
        config = load_config(folder, name)
        return build(config, _read_weights(folder, name), folder), _load_tokenizer(config, folder, name)


@contextmanager
def raise_model_error(name: str) -> Iterator[None]:
    """Convert any error of the libraries for a missing, damaged or unsuitable file to a ModelError.

    Args:
        name: The name of the model for the message.

    Raises:
        ModelError: The body raised an error that is not ibidem's own; the message names a remedy.
    """
    try:
        yield
    except IbidemError:
        raise
    except Exception as error:
        raise _explain(error, name) from error


def _explain(error: Exception, name: str) -> ModelError:
    reason = " ".join(str(error).split())
    if "trust_remote_code" in reason or "custom code" in reason:
        return ModelError(
            f"{name} needs Python code of its own (auto_map in its config.json or tokenizer_config.json), and ibidem "
            f"never runs code that comes with a model: {_USABLE}"
        )
    return ModelError(
        f"Cannot load the model '{name}': {reason[:300]} Give a folder with config.json, model.safetensors and "
        "tokenizer files, or a name on the hub that this machine can reach."
    )


def fetch(name: str, more: Sequence[str] = ()) -> Path:
    """Download the files of a model that ibidem reads into the cache of the hub.

    Args:
        name: The name of the model on the hub.
        more: Patterns of further files.

    Returns:
        The folder in the cache.
    """
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[*_FETCHED, *more], ignore_patterns=list(_NOT_FETCHED)))


def load_config(folder: Path, name: str) -> Any:
    """Read the configuration of an encoder-decoder.

    Args:
        folder: The model folder.
        name: The name of the model for messages.

    Raises:
        ModelError: The folder has no configuration, or the model is quantised or no encoder-decoder.
    """
    from transformers import AutoConfig, dynamic_module_utils

    if not (folder / "config.json").is_file():
        raise ModelError(f"{name} holds no config.json: give the folder of a Hugging Face model.")
    # Classes inside transformers load parts of a model without passing trust_remote_code on, and would then read an
    # answer from stdin, which holds text to translate. With a timeout of 0, transformers raises ValueError instead.
    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    # The implementations of attention and experts may be names of compiled kernels on the hub.
    config = AutoConfig.from_pretrained(
        folder, trust_remote_code=False, attn_implementation=None, experts_implementation=None
    )
    if not config.is_encoder_decoder:
        raise ModelError(f"{name} is a {config.model_type} model, not an encoder-decoder that translates: {_USABLE}")
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(
            f"{name} is quantised (quantization_config in its config.json), which ibidem does not read: use the "
            "original model. The dtype int8 quantises it on a CPU."
        )
    return config


def build(config: Any, weights: dict[str, Tensor], folder: Path) -> Any:
    """Make a network from a configuration and weights.

    transformers receives the weights as tensors and never a path, so that it resolves no weight files, adapters or
    custom generation code by itself.

    Args:
        config: A configuration of transformers.
        weights: The weights by name.
        folder: The model folder, from which the generation settings are read.

    Returns:
        The network in float32.
    """
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    with _BUILDING:
        # Without a dtype, that of the configuration, such as float16, becomes torch's default in all threads meanwhile.
        with torch.device("meta"):
            blank = AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
        network = type(blank).from_pretrained(
            None, config=config, state_dict=weights, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        )
    try:
        generation = GenerationConfig.from_pretrained(folder, trust_remote_code=False)
    except OSError:  # older models have these settings in config.json
        generation = GenerationConfig.from_pretrained(
            folder, config_file_name="config.json", _from_model_config=True, trust_remote_code=False
        )
    network.generation_config = generation
    return network


def _read_weights(folder: Path, name: str) -> dict[str, Tensor]:
    packed = load_packed(folder)
    if packed is not None:
        return packed
    if (folder / PLAIN_FILE).is_file():
        return load_file(folder / PLAIN_FILE)
    if (folder / _INDEX_FILE).is_file():
        shards = read_shards(folder, _INDEX_FILE, ".safetensors")
        return {key: weight for shard in shards for key, weight in load_file(shard).items()}
    raise ModelError(
        f"{name} has no {PLAIN_FILE}, and ibidem reads no other weights, since a pytorch_model.bin can run code when "
        f"it is read. If you trust its author, convert it once: `python -m ibidem.model.convert {name} NEW_FOLDER`, "
        "then give --model NEW_FOLDER."
    )


def read_shards(folder: Path, index_file: str, ending: str) -> list[Path]:
    """List the weight files that an index names.

    Args:
        folder: The model folder.
        index_file: The name of the index.
        ending: The required ending of the files.

    Raises:
        ModelError: The index names a file outside the folder or with another ending.
    """
    index = json.loads((folder / index_file).read_text(encoding="utf-8"))
    names = sorted(set(index["weight_map"].values()))
    for shard in names:
        if Path(shard).name != shard or not shard.endswith(ending):
            raise ModelError(
                f"{folder / index_file} names '{shard}', which is not a {ending} file of the same folder: get the "
                "model from another source."
            )
    return [folder / shard for shard in names]


def _load_tokenizer(config: Any, folder: Path, name: str) -> Any:
    import transformers

    settings = folder / "tokenizer_config.json"
    stated = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    for kind in (stated.get("tokenizer_class"), getattr(config, "tokenizer_class", None)):
        # transformers accepts any of its own classes here, and some of them load other files of the folder.
        found = getattr(transformers, kind, None) if isinstance(kind, str) else None
        if found is not None and not (
            isinstance(found, type) and issubclass(found, transformers.PreTrainedTokenizerBase)
        ):
            raise ModelError(f"{name} cannot be loaded: its tokenizer_class '{kind}' is not a tokenizer.")
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace every matrix by its int8 rows (`.int8`) and their scales (`.scale`); other weights become float16.

    Args:
        weights: The weights of a network by name, of any float type.

    Returns:
        The packed weights by name, which `unpack` reverses up to rounding.
    """
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or not weight.is_floating_point():
            packed[name] = weight.half() if weight.is_floating_point() else weight
            continue
        scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
        packed[name + _ROWS] = (weight.float() / scale).round().to(torch.int8)
        packed[name + _SCALES] = scale.squeeze(1)
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the float32 weights of packed ones.

    Args:
        packed: The result of `pack`.

    Returns:
        The weights by their original names.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(_ROWS):
            scale = packed[name.removesuffix(_ROWS) + _SCALES]
            weights[name.removesuffix(_ROWS)] = tensor.float() * scale[:, None]
        elif not name.endswith(_SCALES):
            weights[name] = tensor.float() if tensor.is_floating_point() else tensor
    return weights


def pack_folder(source: Path, target: Path) -> None:
    """Copy a Hugging Face folder and pack its weights.

    Args:
        source: A folder with `model.safetensors`.
        target: The folder of the packed model.
    """
    target.mkdir(parents=True, exist_ok=True)
    save_file(pack(load_file(source / PLAIN_FILE)), target / PACKED_FILE, metadata={"format": "ibidem-int8-rows"})
    # safetensors creates files that only their owner can read.
    (target / PACKED_FILE).chmod(0o644)
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != PLAIN_FILE:
            shutil.copyfile(file, target / file.name)


def load_packed(folder: Path) -> dict[str, Tensor] | None:
    """Return the unpacked weights of a folder; None where it has no packed ones.

    Args:
        folder: The folder of a model.
    """
    file = folder / PACKED_FILE
    return unpack(load_file(file)) if file.exists() else None
