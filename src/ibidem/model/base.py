"""A Hugging Face encoder-decoder as ibidem sees it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ibidem.errors import ModelError
from ibidem.model.fingerprint import fingerprint_network, fingerprint_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.model.tokens import Tokens

# Rows of logits made at once while learning: bounds RAM for vocabularies of a quarter million words.
_LOGIT_BYTES = 256 << 20


class States(NamedTuple):
    """Teacher-forced decoder states of a batch, rows in the order of the targets' tokens, pads left out.

    keys: [n, d] inputs of the output projection; values: [n] target tokens; lengths: tokens of each target.
    """

    keys: Tensor
    values: Tensor
    lengths: list[int]


class Step(NamedTuple):
    """One decoding step: states [rows, d] that enter the output projection, and the model's logits [rows, V]."""

    states: Tensor
    logits: Tensor


class BaseModel:
    """A frozen encoder-decoder with its tokenizer: any of transformers' seq2seq models."""

    def __init__(self, name: str, network: Any, tokens: Tokens, fingerprint: str | None = None) -> None:
        """`fingerprint` is that of the weights as they were, where the network holds them rounded."""
        self.name = name
        self.tokens = tokens
        self._network = network.eval().requires_grad_(False)
        self._projection = _output_projection(network)
        self._known_fingerprint = fingerprint
        bias: Tensor | None = getattr(network, "final_logits_bias", None)
        # It is often all zeros, and adding those would cost a tenth of the projection.
        self._bias = bias if bias is not None and bool(bias.any()) else None

    @property
    def network(self) -> Any:
        """The transformers model itself, for people who call `generate()`."""
        return self._network

    @property
    def projection(self) -> nn.Linear:
        """The output layer, whose input is a key or a query."""
        return self._projection

    @property
    def device(self) -> torch.device:
        return self._projection.weight.device

    @property
    def dimension(self) -> int:
        return int(self._projection.in_features)

    @property
    def vocabulary_size(self) -> int:
        return int(self._projection.out_features)

    @cached_property
    def fingerprint(self) -> str:
        return self._known_fingerprint or fingerprint_network(self._network)

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        return fingerprint_tokens(self.tokens)

    @cached_property
    def banned(self) -> list[int]:
        """Tokens that the model's own generation settings never allow (Marian: the pad)."""
        words = self._network.generation_config.bad_words_ids or []
        return sorted(word[0] for word in words if len(word) == 1)

    @property
    def forces_eos(self) -> bool:
        """Whether the model's own generation settings end a translation that reaches its limit."""
        return self._network.generation_config.forced_eos_token_id is not None

    @torch.inference_mode()
    def states(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> States:
        """Decoder states of given translations (teacher forcing); targets end with the end-of-sentence token."""
        source, mask = self._pad(sources)
        prompt = self.tokens.start
        target, real = self._pad([[*prompt, *ids[:-1]] for ids in targets])
        captured: list[Tensor] = []

        def keep_all_project_one(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            captured.append(inputs[0])
            return (inputs[0][:, :1],)

        with _hooked(self._projection, keep_all_project_one):
            self._network(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False)
        wanted = real.bool()
        wanted[:, : len(prompt) - 1] = False
        values = torch.tensor([token for ids in targets for token in ids], device=self.device)
        return States(captured[0][wanted], values, [len(ids) for ids in targets])

    @torch.inference_mode()
    def log_probs(self, states: States) -> Tensor:
        """The base model's log-probability of each value [n], in fp32."""
        parts = [-cross_entropy(logits, values, reduction="none") for logits, values in self.logit_blocks(states)]
        return torch.cat(parts) if parts else torch.empty(0, device=self.device)

    def logit_blocks(self, states: States) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits [block, V] in fp32 and values [block], block by block in bounded RAM."""
        rows = max(1, _LOGIT_BYTES // (4 * self.vocabulary_size))
        for first in range(0, len(states.values), rows):
            yield self.project(states.keys[first : first + rows]), states.values[first : first + rows]

    def project(self, keys: Tensor) -> Tensor:
        """The model's own logits [n, V] in fp32 of states [n, d]."""
        logits: Tensor = self._projection(keys)
        return (logits if self._bias is None else logits + self._bias).float()

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> Decoding:
        """Encode sources; the decoding has one row a source until it is reordered."""
        source, mask = self._pad(sources)
        encoder = self._network.get_encoder()
        encoded = encoder(input_ids=source, attention_mask=mask, return_dict=True)
        return Decoding(self._network, self._projection, encoded, mask)

    def _pad(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        longest = max(len(ids) for ids in sequences)
        padded = [[*ids, *[self.tokens.pad] * (longest - len(ids))] for ids in sequences]
        mask = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in sequences]
        return torch.tensor(padded, device=self.device), torch.tensor(mask, device=self.device)


class Decoding:
    """A batch of translations being written: `step` adds a token to every row, `reorder` picks rows."""

    def __init__(self, network: Any, projection: nn.Linear, encoded: Any, mask: Tensor) -> None:
        self._network = network
        self._projection = projection
        self._encoded = encoded
        self._mask = mask
        self._cache: Any = None

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Step:
        """Feed tokens [rows, t] (t > 1 only for the prompt of the first step); the last position's state and logits."""
        captured: list[Tensor] = []

        def keep_last(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            captured.append(inputs[0][:, -1:])
            return (captured[0],)

        with _hooked(self._projection, keep_last):
            output = self._network(
                encoder_outputs=self._encoded,
                attention_mask=self._mask,
                decoder_input_ids=tokens,
                past_key_values=self._cache,
                use_cache=True,
            )
        self._cache = output.past_key_values
        return Step(captured[0][:, -1], output.logits[:, -1].float())

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """Keep these rows [new_rows], in this order; a row may be dropped or stand several times."""
        self._mask = self._mask.index_select(0, rows)
        self._encoded.last_hidden_state = self._encoded.last_hidden_state.index_select(0, rows)
        if self._cache is not None:
            self._cache.batch_select_indices(rows)


def _output_projection(network: Any) -> nn.Linear:
    """The linear layer that makes the logits: FSMT keeps it in the decoder and answers with its embedding table."""
    decoder = getattr(getattr(network, "model", None), "decoder", None)
    projection = getattr(decoder, "output_projection", None) or network.get_output_embeddings()
    if not isinstance(projection, nn.Linear):
        raise ModelError(
            f"{type(network).__name__} has no linear output layer that ibidem knows: "
            "use a Marian, FSMT, M2M100, NLLB, BART, mBART or T5 model."
        )
    return projection


@contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    """A hook for this thread alone: another one may use the model at the same time."""
    owner = get_ident()
    handle = module.register_forward_pre_hook(lambda *given: hook(*given) if get_ident() == owner else None)
    try:
        yield
    finally:
        handle.remove()
