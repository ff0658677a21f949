"""Read a Hugging Face model without running code or unpickling files that come with it.

Everything ibidem loads through transformers or huggingface_hub is loaded here.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from ibidem.errors import IbidemError, ModelError
from ibidem.model.packing import PACKED_FILE, PLAIN_FILE, load_packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_INDEX_FILE = "model.safetensors.index.json"
# No Python files, pickles, adapters or chat templates are downloaded.
_FETCHED = ("*.json", "*.txt", "*.model", "*.spm", PLAIN_FILE, "model-*.safetensors", PACKED_FILE)
_NOT_FETCHED = ("*/*", "adapter_*")
_USABLE = "use a Marian, FSMT, M2M100, NLLB, BART, mBART or T5 model."


def load_pretrained(name: str, folder: Path | None = None) -> tuple[Any, Any]:
    """Load the network and the tokenizer of a model folder or, without one, of a name on the hub.

    Raises ModelError, which names the model and the remedy, for anything that cannot be loaded.
    """
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # The tokenizer advises on line lengths that ibidem splits itself.
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
    with explained(name):
        folder = fetch(name) if folder is None else folder
        config = load_config(folder, name)
        return build(config, _read_weights(folder, name), folder), _load_tokenizer(config, folder, name)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn whatever the libraries raise for a missing, damaged or unsuitable file into a ModelError."""
    try:
        yield
    except IbidemError:
        raise
    except Exception as error:
        raise _explain(error, name) from error


def fetch(name: str, more: Sequence[str] = ()) -> Path:
    """Download the files of a model on the hub that ibidem reads, and those that match `more`, into the hub's cache."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[*_FETCHED, *more], ignore_patterns=list(_NOT_FETCHED)))


def build(config: Any, weights: dict[str, Tensor], folder: Path) -> Any:
    """Make the network of a configuration with the given weights and the generation settings of the folder.

    transformers gets the weights as tensors and never a path, so it resolves no weight files, adapters or custom
    generation code by itself.
    """
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    with torch.device("meta"):
        blank = AutoModelForSeq2SeqLM.from_config(config, trust_remote_code=False)
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


def read_shards(folder: Path, index_file: str, ending: str) -> list[Path]:
    """List the weight files that an index names; raises ModelError for one outside the folder or of another type."""
    index = json.loads((folder / index_file).read_text(encoding="utf-8"))
    names = sorted(set(index["weight_map"].values()))
    for shard in names:
        if Path(shard).name != shard or not shard.endswith(ending):
            raise ModelError(f"{folder / index_file} names '{shard}', which is not a {ending} file of the same folder.")
    return [folder / shard for shard in names]


def load_config(folder: Path, name: str) -> Any:
    """Read the configuration of an encoder-decoder; raises ModelError for any other, and for a quantised one."""
    from transformers import AutoConfig, dynamic_module_utils

    if not (folder / "config.json").is_file():
        raise ModelError(f"{name} holds no config.json: give the folder of a Hugging Face model.")
    # Classes inside transformers load parts of a model without passing trust_remote_code on, and would then ask on
    # stdin, which holds text to translate. With a timeout of 0, transformers raises ValueError instead of asking.
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
            "original model; --dtype int8 quantises it on a CPU."
        )
    return config


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


def _load_tokenizer(config: Any, folder: Path, name: str) -> Any:
    import transformers

    settings = folder / "tokenizer_config.json"
    stated = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    for kind in (stated.get("tokenizer_class"), getattr(config, "tokenizer_class", None)):
        # transformers takes any of its own classes here, some of which load further things from the folder.
        found = getattr(transformers, kind, None) if isinstance(kind, str) else None
        if found is not None and not (
            isinstance(found, type) and issubclass(found, transformers.PreTrainedTokenizerBase)
        ):
            raise ModelError(f"{name} cannot be loaded: its tokenizer_class '{kind}' is not a tokenizer.")
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


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
