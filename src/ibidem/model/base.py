"""A Hugging Face encoder-decoder as ibidem sees it."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ibidem.errors import ModelError, UsageError
from ibidem.model.decoding import Decoding, TransformersDecoding, flatten, forward_pre_hook, pad_ids
from ibidem.model.fast_marian import FastMarian, FastMarianDecoding, supports_fast_marian
from ibidem.model.fingerprint import fingerprint_network, fingerprint_tokens
from ibidem.model.linear import Int8Linear, PlainLinear
from ibidem.model.native_engine import NativeEngine, supports_native
from ibidem.model.tokens import LanguagePair
from ibidem.native import NativeLinear
from ibidem.text import same_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.model.tokens import Tokens

# Rows of logits made at once while learning: bounds RAM for vocabularies of a quarter million words.
_LOGIT_BYTES = 256 << 20


class States(NamedTuple):
    """Teacher-forced decoder states of a batch, rows in the order of the targets' tokens, pads left out.

    keys: [n, d] inputs of the output projection; values: [n] target tokens; lengths: tokens of each target;
    log_probs: [n] the model's log-probabilities of the values, or None where they were not computed.
    """

    keys: Tensor
    values: Tensor
    lengths: list[int]
    log_probs: Tensor | None = None


class BaseModel:
    """A frozen encoder-decoder with its tokenizer: any of transformers' seq2seq models."""

    def __init__(
        self, name: str, network: Any, tokens: Tokens, fingerprint: str | None = None, *, int8: bool = False
    ) -> None:
        """`fingerprint` is that of the weights as they were, where the network holds them rounded.

        int8: decode with int8 products, and learn with them too where native code makes that fast.
        """
        self.name = name
        self.tokens = tokens
        self._network = network.eval().requires_grad_(False)
        self._projection = _output_projection(network)
        self._given_fingerprint = fingerprint
        self._int8 = int8
        bias: Tensor | None = getattr(network, "final_logits_bias", None)
        # It is often all zeros, and adding those would cost a tenth of the projection.
        self._bias = bias if bias is not None and bool(bias.any()) else None

    def check_languages(self, source: str | None, target: str | None) -> None:
        """Raise UsageError unless the model translates from this source and to this target; None is any."""
        own = LanguagePair(self.tokens.source_language, self.tokens.target_language)
        given = LanguagePair(source, target)
        for known, wanted in zip(own, given, strict=True):
            if wanted is not None and (known is None or not same_language(known, wanted)):
                loaded = f"translates {own}" if str(own) else "does not say which languages it translates"
                raise UsageError(
                    f"The model {self.name} was loaded already and {loaded}; it cannot be set to translate {given} "
                    "now: leave the languages out, or load it with them."
                )

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
        return self._given_fingerprint or fingerprint_network(self._network)

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

    @property
    def arithmetic(self) -> str:
        """What states for learning are computed in: int8, or the dtype of the weights."""
        return "int8" if self._native else str(self._projection.weight.dtype).removeprefix("torch.")

    @torch.inference_mode()
    def states(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> States:
        """Decoder states of given translations (teacher forcing); targets end with the end-of-sentence token."""
        return (
            self._force_decode_steps(sources, targets) if self._native else self._force_decode_batch(sources, targets)
        )

    def _force_decode_batch(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> States:
        source, mask = self.pad(sources)
        prompt = self.tokens.start
        target, real = self.pad([[*prompt, *ids[:-1]] for ids in targets])
        captured: list[Tensor] = []

        def keep_all_project_one(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            captured.append(inputs[0])
            return (inputs[0][:, :1],)

        with forward_pre_hook(self._projection, keep_all_project_one):
            self._network(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False)
        wanted = real.bool()
        wanted[:, : len(prompt) - 1] = False
        values = torch.from_numpy(flatten(targets)).to(self.device)
        return States(captured[0][wanted], values, [len(ids) for ids in targets])

    @torch.inference_mode()
    def log_probs(self, states: States) -> Tensor:
        """The base model's log-probability of each value [n], in fp32."""
        if states.log_probs is not None:
            return states.log_probs
        parts = [-cross_entropy(logits, values, reduction="none") for logits, values in self.logit_blocks(states)]
        return torch.cat(parts) if parts else torch.empty(0, device=self.device)

    def force_decode(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check: Callable[[], None] = lambda: None,
    ) -> tuple[States, Tensor]:
        """States of given translations, and the log-probability of each value [n], as decoding sees them.

        Beside `states` this differs only with int8 products that are not native, which learning does without. check: is
        called before every step of the model, and ends the work with what it raises.
        """
        check()
        states = self._force_decode_steps(sources, targets, check) if self._int8 else self.states(sources, targets)
        return states, self.log_probs(states)

    @torch.inference_mode()
    def _force_decode_steps(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check: Callable[[], None] = lambda: None,
    ) -> States:
        decoding = self.start(sources)
        wanted, real = self.pad(targets)
        fed = torch.tensor(self.tokens.start, device=self.device).expand(len(sources), -1)
        keys, log_probs = [], []
        for position in range(wanted.shape[1]):
            check()
            step = decoding.step(fed)
            fed = wanted[:, position : position + 1]
            keys.append(step.states)
            log_probs.append(step.logits.log_softmax(dim=1).gather(1, fed)[:, 0])
        known = real.bool()
        values = torch.from_numpy(flatten(targets)).to(self.device)
        lengths = [len(ids) for ids in targets]
        return States(torch.stack(keys, dim=1)[known], values, lengths, torch.stack(log_probs, dim=1)[known])

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
    def start(self, sources: Sequence[Sequence[int]], beam: int = 1) -> Decoding:
        """Encode sources; the decoding has `beam` rows for each, one source after the other."""
        source, mask = self.pad(sources)
        if self._engine is not None:
            return self._engine(source, mask, beam)
        encoded = self._network.get_encoder()(input_ids=source, attention_mask=mask, return_dict=True)
        decoding = TransformersDecoding(self._network, self._projection, encoded, mask)
        decoding.reorder(torch.arange(len(sources), device=self.device).repeat_interleave(beam))
        return decoding

    @cached_property
    def lean(self) -> FastMarian | None:
        """The network laid out for fast decoding, where its architecture allows."""
        if not supports_fast_marian(self._network) or len(self.tokens.start) != 1:
            return None
        linear = (NativeLinear if self._native else Int8Linear) if self._int8 else PlainLinear
        return FastMarian(self._network, self._projection, self._bias, linear)

    @cached_property
    def _engine(self) -> Callable[[Tensor, Tensor, int], Decoding] | None:
        """Starts decodings of padded sources with their mask, where the architecture has a fast engine."""
        if self.lean is None:
            return None
        return NativeEngine(self.lean).start if self._native else partial(FastMarianDecoding, self.lean)

    @property
    def _native(self) -> bool:
        return self._int8 and supports_native(self._network)

    def pad(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Token ids [n, longest], padded at their ends, and a mask [n, longest], 1 where they are real."""
        return pad_ids(sequences, self.tokens.pad, self.device)


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
