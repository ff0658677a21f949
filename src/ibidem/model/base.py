"""The base model: a frozen Hugging Face encoder-decoder with its tokenizer, and the fingerprints of both."""

from __future__ import annotations

import hashlib
import json
import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ibidem.errors import ModelError, UsageError
from ibidem.model.decoding import Decoding, TransformersDecoding, flatten, forward_pre_hook, mean_states, pad_ids
from ibidem.model.fast_marian import FastMarian, FastMarianDecoding, supports_fast_marian
from ibidem.model.linear import Int8Linear, PlainLinear
from ibidem.model.marian import MarianNetwork
from ibidem.model.native_engine import NativeEngine, supports_native
from ibidem.model.tokens import LanguagePair
from ibidem.native import NativeLinear
from ibidem.text import same_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ibidem.model.tokens import Tokens

# The size of a block of logits: bounds RAM for vocabularies of 250,000 tokens.
_LOGIT_BYTES = 256 << 20
# Text that exercises casing, umlauts, numbers, punctuation and rare characters of a tokenizer.
_PROBES = (
    "Die Zwischenablage enthält 1.234 Objekte.",
    "Grundstücksverkehrsgenehmigungszuständigkeit",
    'He said: "It\'s 50 % off – buy now!"',
    "ΑΒΓ 漢字 żółć 🙂\u200d\u00ad",
    "%s {name} <b>&amp;</b> C:\\foo_bar",
)


class States(NamedTuple):
    """Decoder states of a batch of given translations, in the order of the target tokens and without padding.

    Attributes:
        keys: [n, d] inputs of the output projection.
        values: [n] ids of the target tokens.
        lengths: The number of tokens of each target; they sum to n.
        source_means: [sentences, d] the mean encoder state of each source, float32.
        log_probs: [n] the model's log-probabilities of the values; None where they were not computed.
    """

    keys: Tensor
    values: Tensor
    lengths: list[int]
    source_means: Tensor
    log_probs: Tensor | None = None


class BaseModel:
    """A frozen encoder-decoder with its tokenizer: any sequence-to-sequence model of transformers.

    `load_model` makes one. The examples of the methods continue the one below.

    Examples:
        >>> from ibidem.model import load_model
        >>> model = load_model(device="cpu")
        >>> sources = model.tokens.encode_sources(["Guten Morgen!", "Die Datei ist leer."])
        >>> targets = model.tokens.encode_targets(["Good morning!", "The file is empty."])

    Attributes:
        name: The name or the absolute path that the model was loaded by.
        tokens: The tokenizers of both sides.
        general: The folder of what was trained on general text for all memories of the model; None without one.
    """

    def __init__(
        self,
        name: str,
        network: Any,
        tokens: Tokens,
        fingerprint: str | None = None,
        *,
        int8: bool = False,
        general: Path | None = None,
    ) -> None:
        """Wrap a network and its tokenizer.

        Args:
            name: The name of the model for messages and for the identity of memories.
            network: A transformers model; it is set to evaluation mode and its weights are frozen.
            tokens: The tokenizers of both sides.
            fingerprint: The fingerprint of the original weights, where the network holds rounded ones.
            int8: Decode with int8 products. States for learning use them too where the native library supports the
                model.
            general: The folder with what was trained for this model on general text, for every memory: a compactor,
                the projection of source vectors, and a contextual combiner. None without one.

        Raises:
            ModelError: The network has no linear output layer.
        """
        self.name = name
        self.tokens = tokens
        self.general = general
        self._network = network.eval().requires_grad_(False)
        self._projection = _output_projection(network)
        self._loading = threading.Lock()
        self._given_fingerprint = fingerprint
        self._int8 = int8
        bias: Tensor | None = getattr(network, "final_logits_bias", None)
        # A bias of zeros is common, and adding it would take time in every step.
        self._bias = bias if bias is not None and bool(bias.any()) else None

    def check_languages(self, source: str | None, target: str | None) -> None:
        """Check that the model translates between two languages.

        Args:
            source: The source language; None accepts any.
            target: The target language; None accepts any.

        Raises:
            UsageError: The model translates other languages, or does not state its languages.
        """
        own = LanguagePair(self.tokens.source_language, self.tokens.target_language)
        given = LanguagePair(source, target)
        for known, wanted in zip(own, given, strict=True):
            if wanted is not None and (known is None or not same_language(known, wanted)):
                loaded = f"translates {own}" if str(own) else "does not state its languages"
                raise UsageError(
                    f"The model {self.name} is loaded already and {loaded}; it cannot be set to translate {given} "
                    "now: omit the languages, or load the model with them."
                )

    @property
    def network(self) -> Any:
        """The transformers model, for callers of `generate()`; it is loaded when it is first needed."""
        if isinstance(self._network, MarianNetwork):
            with self._loading:
                if isinstance(self._network, MarianNetwork):  # no other thread was faster
                    weight = self._projection.weight
                    loaded = self._network.load().to(weight.device, weight.dtype)
                    # The projection first: another thread that finds the network uses its projection.
                    self._projection = _output_projection(loaded)
                    self._network = loaded.eval().requires_grad_(False)
        return self._network

    @property
    def projection(self) -> nn.Linear:
        """The output layer; its input is a key or a query."""
        return self._projection

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self._projection.weight.device

    @property
    def dimension(self) -> int:
        """The dimension of keys and queries."""
        return int(self._projection.in_features)

    @property
    def vocabulary_size(self) -> int:
        """The number of target tokens."""
        return int(self._projection.out_features)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the original weights; see `fingerprint_network`."""
        return self._given_fingerprint or fingerprint_network(self._network)

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        """The sha256 of the tokenizer's behaviour; see `fingerprint_tokens`."""
        return fingerprint_tokens(self.tokens)

    @cached_property
    def banned(self) -> list[int]:
        """The tokens that the model's generation settings exclude (Marian: the padding token)."""
        words = self._network.generation_config.bad_words_ids or []
        return sorted(word[0] for word in words if len(word) == 1)

    @property
    def forces_eos(self) -> bool:
        """Whether the generation settings end a translation of the maximum length with the end-of-sentence token."""
        return self._network.generation_config.forced_eos_token_id is not None

    @property
    def arithmetic(self) -> str:
        """The number format in which states for learning are computed: int8, or the dtype of the weights."""
        return "int8" if self._native else str(self._projection.weight.dtype).removeprefix("torch.")

    @torch.inference_mode()
    def states(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> States:
        """Compute the decoder states of given translations (teacher forcing).

        Args:
            sources: Token ids of n sources.
            targets: Token ids of n targets, each with the end-of-sentence token at its end.

        Returns:
            The states of all target tokens.

        Examples:
            >>> states = model.states(sources, targets)
            >>> states.keys.shape == (sum(states.lengths), model.dimension)
            True
            >>> states.values.tolist() == targets[0] + targets[1]
            True
        """
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

        network = self.network  # may replace the projection
        with forward_pre_hook(self._projection, keep_all_project_one):
            made = network(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False)
        wanted = real.bool()
        wanted[:, : len(prompt) - 1] = False
        values = torch.from_numpy(flatten(targets)).to(self.device)
        means = mean_states(made.encoder_last_hidden_state, mask)
        return States(captured[0][wanted], values, [len(ids) for ids in targets], means)

    @torch.inference_mode()
    def log_probs(self, states: States) -> Tensor:
        """Compute the base model's log-probability of each value.

        Args:
            states: States that this model computed.

        Returns:
            [n] log-probabilities in float32.
        """
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
        """Compute the states of given translations with the arithmetic of decoding.

        The result differs from that of `states` only for int8 products without the native library: learning uses
        float32 then.

        Args:
            sources: Token ids of n sources.
            targets: Token ids of n targets, each with the end-of-sentence token at its end.
            check: A function that is called before every step of the model; an exception in it ends the work.

        Returns:
            The states, and [n] the log-probability of each value in float32.
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
        found = torch.stack(log_probs, dim=1)[known]
        return States(torch.stack(keys, dim=1)[known], values, lengths, decoding.source_means, found)

    def logit_blocks(self, states: States) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the logits of states in blocks of bounded size.

        Args:
            states: States that this model computed.

        Yields:
            [block, V] logits in float32, and [block] the values.
        """
        rows = max(1, _LOGIT_BYTES // (4 * self.vocabulary_size))
        for first in range(0, len(states.values), rows):
            yield self.project(states.keys[first : first + rows]), states.values[first : first + rows]

    def project(self, keys: Tensor) -> Tensor:
        """Compute the model's logits.

        Args:
            keys: [n, d] decoder states.

        Returns:
            [n, V] logits in float32.
        """
        logits: Tensor = self._projection(keys)
        return (logits if self._bias is None else logits + self._bias).float()

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], beam: int = 1) -> Decoding:
        """Encode sources and start their decoding.

        Args:
            sources: Token ids of n sources.
            beam: The number of hypotheses for each source.

        Returns:
            A decoding of n * beam rows; the rows of a source are adjacent.

        Examples:
            >>> import torch
            >>> decoding = model.start(sources, beam=2)
            >>> step = decoding.step(torch.tensor([model.tokens.start] * 4))
            >>> step.logits.shape == (4, model.vocabulary_size)
            True
        """
        source, mask = self.pad(sources)
        if self._engine is not None:
            return self._engine(source, mask, beam)
        network = self.network
        encoded = network.get_encoder()(input_ids=source, attention_mask=mask, return_dict=True)
        decoding = TransformersDecoding(network, self._projection, encoded, mask)
        decoding.reorder(torch.arange(len(sources), device=self.device).repeat_interleave(beam))
        return decoding

    @cached_property
    def fast_marian(self) -> FastMarian | None:
        """The network in the layout of `FastMarian`; None where its architecture is not supported."""
        if not supports_fast_marian(self._network) or len(self.tokens.start) != 1:
            return None
        linear = (NativeLinear if self._native else Int8Linear) if self._int8 else PlainLinear
        return FastMarian(self._network, self._projection, self._bias, linear)

    @cached_property
    def _engine(self) -> Callable[[Tensor, Tensor, int], Decoding] | None:
        """The function that starts fast decodings from padded sources, their mask and the beam; None without one."""
        if self.fast_marian is None:
            return None
        return NativeEngine(self.fast_marian).start if self._native else partial(FastMarianDecoding, self.fast_marian)

    def prepare(self) -> None:
        """Arrange the weights for decoding now, instead of at the first decoding; any thread may call this."""
        _ = self._engine

    @property
    def _native(self) -> bool:
        return self._int8 and supports_native(self._network)

    def pad(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Pad sequences of token ids at their ends.

        Args:
            sequences: n sequences of token ids.

        Returns:
            [n, longest] token ids, and [n, longest] a mask that is 1 at real tokens and 0 at padding.
        """
        return pad_ids(sequences, self.tokens.pad, self.device)


def _output_projection(network: Any) -> nn.Linear:
    """Return the linear layer that makes the logits; FSMT has it in the decoder."""
    decoder = getattr(getattr(network, "model", None), "decoder", None)
    projection = getattr(decoder, "output_projection", None) or network.get_output_embeddings()
    if not isinstance(projection, nn.Linear):
        raise ModelError(
            f"{type(network).__name__} has no linear output layer that ibidem supports: "
            "use a Marian, FSMT, M2M100, NLLB, BART, mBART or T5 model."
        )
    return projection


def fingerprint_network(network: nn.Module) -> str:
    """Compute the sha256 of the names, shapes and float32 values of all parameters.

    The result does not depend on the device or the file format.

    Args:
        network: A transformers model in the precision of its files; rounded weights have another fingerprint.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    weights = dict(network.named_parameters())
    # Marian and BART keep a learnt bias of the logits outside their parameters.
    bias = getattr(network, "final_logits_bias", None)
    if bias is not None:
        weights["final_logits_bias"] = bias
    for name, parameter in sorted(weights.items()):
        digest.update(f"{name}:{tuple(parameter.shape)};".encode())
        digest.update(parameter.detach().to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()


def fingerprint_tokens(tokens: Tokens) -> str:
    """Compute the sha256 of a tokenizer's behaviour: its vocabularies, and sample texts encoded on both sides.

    Args:
        tokens: The tokenizers of both sides; the languages and the prefix are part of their behaviour.

    Returns:
        64 hexadecimal digits.
    """
    behaviour = {
        "vocabulary": sorted(tokens.vocabulary().items()),
        "sources": tokens.encode_sources(_PROBES),
        "targets": tokens.encode_targets(_PROBES),
        "start": tokens.start,
    }
    return hashlib.sha256(json.dumps(behaviour, ensure_ascii=True).encode()).hexdigest()
