"""Marian models without the library transformers, whose import takes longer than a translation.

`read_marian` reads the files of the usual layout: one vocabulary, tied embeddings, sinusoidal positions. For anything
else it returns None, and the caller loads the model with transformers. The network holds weights and computes nothing:
`FastMarian` and the native library translate with them, and `BaseModel.network` replaces the network by that of
transformers where one is needed.
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_SPACE = "\u2581"
_ACTIVATIONS: dict[str, type[nn.Module]] = {"swish": nn.SiLU, "silu": nn.SiLU, "relu": nn.ReLU}
# The fields of config.json that the network and the tokens need, beside those of _USUAL.
_SIZES = (
    "d_model",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "decoder_start_token_id",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_layers",
    "eos_token_id",
    "max_position_embeddings",
    "pad_token_id",
    "vocab_size",
)
_USUAL: dict[str, Any] = {
    "architectures": ["MarianMTModel"],
    "is_encoder_decoder": True,
    "model_type": "marian",
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
_USUAL_TOKENIZER: dict[str, Any] = {
    "tokenizer_class": "MarianTokenizer",
    "separate_vocabs": False,
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
_TOKENIZER_FIELDS = {*_USUAL_TOKENIZER, "source_lang", "target_lang", "model_max_length"}
# Files with which transformers would read the tokenizer differently.
_OTHER_TOKENIZER_FILES = ("tokenizer.json", "added_tokens.json", "special_tokens_map.json", "target_vocab.json")
# Position embeddings are computed before the weights are checked, so a forged number must not fill the memory.
_MAX_POSITIONS = 1 << 16
_GENERATION_FIELDS = (
    "bad_words_ids",
    "decoder_start_token_id",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "pad_token_id",
)


class _Blank:
    """A layer whose weights are not initialised: that would take time, and torch would import its compiler."""

    def reset_parameters(self) -> None:
        pass


class _Linear(_Blank, nn.Linear):
    pass


class _Embedding(_Blank, nn.Embedding):
    pass


class _LayerNorm(_Blank, nn.LayerNorm):
    pass


class MarianNetwork(nn.Module):
    """The weights of a Marian model under the names that transformers gives them.

    Args:
        config: The fields of config.json.
        generation: The generation settings.
        load: Loads the same model with transformers.

    Attributes:
        config: The fields of config.json.
        generation_config: The generation settings.
        model: Encoder and decoder.
        lm_head: The output layer, tied to the embeddings.
        load: See above.
    """

    final_logits_bias: Tensor

    def __init__(self, config: Any, generation: Any, load: Callable[[], Any]) -> None:
        super().__init__()
        self.config = config
        self.generation_config = generation
        self.load = load
        self.model = _Halves(config)
        self.lm_head = _Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.empty(1, config.vocab_size))

    def get_output_embeddings(self) -> nn.Linear:
        """Return the output layer."""
        return self.lm_head

    def tie(self) -> None:
        """Let the output layer and both embeddings share their weight."""
        weight = self.model.shared.weight
        self.lm_head.weight = self.model.encoder.embed_tokens.weight = self.model.decoder.embed_tokens.weight = weight


class _Halves(nn.Module):
    """Encoder and decoder with shared embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.shared = _Embedding(config.vocab_size, config.d_model)
        self.encoder = _Half(config, "encoder", self.shared)
        self.decoder = _Half(config, "decoder", self.shared)


class _Half(nn.Module):
    """The encoder or the decoder."""

    def __init__(self, config: Any, name: str, shared: nn.Embedding) -> None:
        super().__init__()
        self.embed_tokens = shared
        self.embed_positions = _Embedding(config.max_position_embeddings, config.d_model)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.layers = nn.ModuleList(_Layer(config, name) for _ in range(getattr(config, f"{name}_layers")))


class _Layer(nn.Module):
    """A layer of the encoder or the decoder."""

    def __init__(self, config: Any, name: str) -> None:
        super().__init__()
        width, inner = config.d_model, getattr(config, f"{name}_ffn_dim")
        heads = getattr(config, f"{name}_attention_heads")
        self.self_attn = _Attention(width, heads)
        self.activation_fn = _ACTIVATIONS[config.activation_function]()
        self.self_attn_layer_norm = _LayerNorm(width)
        if name == "decoder":
            self.encoder_attn = _Attention(width, heads)
            self.encoder_attn_layer_norm = _LayerNorm(width)
        self.fc1 = _Linear(width, inner)
        self.fc2 = _Linear(inner, width)
        self.final_layer_norm = _LayerNorm(width)


class _Attention(nn.Module):
    """The projections of an attention block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.scaling = (width // heads) ** -0.5
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (_Linear(width, width) for _ in range(4))


class MarianTokenizer:
    """A Marian tokenizer of one vocabulary, with what `Tokens` uses of that of transformers.

    Args:
        folder: The model folder.
        settings: The fields of tokenizer_config.json.
        load: Loads the same tokenizer with transformers.

    Raises:
        ValueError: The vocabulary has no special tokens.
        OSError: A file cannot be read.
    """

    separate_vocabs = False
    unk_token = "<unk>"

    def __init__(self, folder: Path, settings: dict[str, Any], load: Callable[[], Any]) -> None:
        import sentencepiece

        self.source_lang: str | None = settings.get("source_lang")
        self.target_lang: str | None = settings.get("target_lang")
        self.model_max_length = int(settings["model_max_length"])
        self.encoder: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        self._pieces = {number: piece for piece, number in self.encoder.items()}
        special = [_USUAL_TOKENIZER[name] for name in ("eos_token", "unk_token", "pad_token")]
        if not all(piece in self.encoder for piece in special):
            raise ValueError("the vocabulary has no special tokens")
        self.all_special_ids = [self.encoder[piece] for piece in special]
        self.eos_token_id = self.all_special_ids[0]
        self.supported_language_codes = [piece for piece in self.encoder if piece[:2] == ">>" and piece[-2:] == "<<"]
        self.spm_source, self.spm_target = (
            sentencepiece.SentencePieceProcessor(str(folder / name)) for name in ("source.spm", "target.spm")
        )
        self._load = load

    @cached_property
    def _full(self) -> Any:
        return self._load()

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Encode texts with the tokenizer of transformers: the few that `FastMarianTokenizer` does not encode.

        Args:
            *texts: See transformers.
            **options: See transformers.
        """
        return self._full(*texts, **options)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each token.

        Args:
            ids: Token ids.
        """
        return [self._pieces[number] for number in ids]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Convert token ids to text.

        Args:
            ids: Token ids.
            skip_special_tokens: Must be true: the text has no special tokens.
        """
        if not skip_special_tokens:
            raise ValueError("special tokens are always skipped")
        special = set(self.all_special_ids)
        pieces = [self._pieces[number] for number in ids if number not in special]
        text: str = self.spm_source.decode_pieces(pieces)
        return text.replace(_SPACE, " ").strip()

    def get_vocab(self) -> dict[str, int]:
        """Return the pieces with their ids."""
        return dict(self.encoder)


def read_marian(
    folder: Path, read_weights: Callable[[], dict[str, Tensor]], load: Callable[[], tuple[Any, Any]]
) -> tuple[MarianNetwork, MarianTokenizer] | None:
    """Read a Marian model of the usual layout.

    Args:
        folder: The model folder.
        read_weights: Reads the weights in float32.
        load: Loads the network and the tokenizer with transformers.

    Returns:
        The network and the tokenizer; None where the files have another layout or are damaged.
    """
    try:
        config, generation, settings = (
            json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("config", "generation_config", "tokenizer_config")
        )
        if not _is_usual(folder, config, settings):
            return None
        tokenizer = MarianTokenizer(folder, settings, lambda: load()[1])
        network = _build(
            SimpleNamespace(**{"bos_token_id": None, **config}),
            SimpleNamespace(**{name: generation.get(name) for name in _GENERATION_FIELDS}),
            read_weights(),
            lambda: load()[0],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RuntimeError, SafetensorError):
        return None  # transformers reads it, or names what is wrong
    return None if network is None else (network, tokenizer)


def _is_usual(folder: Path, config: dict[str, Any], settings: dict[str, Any]) -> bool:
    return (
        all(config.get(name) == value for name, value in _USUAL.items())
        and all(isinstance(config[name], int) for name in _SIZES)
        and config["max_position_embeddings"] <= _MAX_POSITIONS
        and config.get("decoder_vocab_size", config["vocab_size"]) == config["vocab_size"]
        and config["activation_function"] in _ACTIVATIONS
        and isinstance(config["scale_embedding"], bool)
        and not {"auto_map", "quantization_config"} & {*config}
        and all(settings.get(name) == value for name, value in _USUAL_TOKENIZER.items())
        and {*settings} <= _TOKENIZER_FIELDS
        and not any((folder / name).exists() for name in _OTHER_TOKENIZER_FILES)
    )


def _build(config: Any, generation: Any, weights: dict[str, Tensor], load: Callable[[], Any]) -> MarianNetwork | None:
    """Return the network with these weights; None where a name or a shape differs."""
    # Before anything is made of these sizes: forged ones must not fill the memory.
    shared = weights.get("model.shared.weight")
    if shared is None or tuple(shared.shape) != (config.vocab_size, config.d_model):
        return None
    if config.encoder_layers + config.decoder_layers > len(weights):
        return None
    with torch.device("meta"):
        network = MarianNetwork(config, generation, load)
    positions = _sinusoids(config.max_position_embeddings, config.d_model)
    given = {
        **{f"model.{half}.embed_positions.weight": positions.clone() for half in ("encoder", "decoder")},
        **weights,
    }
    # The weight of the embeddings is stored once, under the name that comes first.
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    given.update({name: shared for name in tied if name not in given})
    expected = network.state_dict()
    if {*given} != {*expected} or any(given[name].shape != expected[name].shape for name in given):
        return None
    if any(not torch.equal(given[name], shared) for name in tied):
        return None
    network.load_state_dict(given, assign=True)
    network.tie()
    return network


def _sinusoids(count: int, width: int) -> Tensor:
    """Return the position embeddings [count, width], to the last bit those of transformers."""
    powers = np.array([np.power(10000, 2 * (column // 2) / width) for column in range(width)])
    angles = np.arange(count)[:, None] / powers
    made = torch.empty(count, width)
    half = (width + 1) // 2
    made[:, :half] = torch.from_numpy(np.sin(angles[:, 0::2])).float()
    made[:, half:] = torch.from_numpy(np.cos(angles[:, 1::2])).float()
    return made
