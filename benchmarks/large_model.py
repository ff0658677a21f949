"""Time a memory with a model of WMT19's size (6 + 6 layers, 1024, 8192, 42,024 tokens) with random weights.

    python benchmarks/large_model.py --device cuda --dtype float16 --entries 4300000 --out large_model.json
    python benchmarks/large_model.py -m memories/it --device cuda --dtype float16 --index exact int8 'lists;nprobe=128'
    python benchmarks/large_model.py -m memories/it --text TEXT --dtype int8 --batches 1 32

Speed does not depend on the values of the weights, so random weights replace a model that cannot be shipped. A random
model never ends a sentence: every translation has --steps tokens, the same for all systems. Keys are the compact keys
of a memory (-m), or random ones, for which exact search takes as long. The compactor has the paper's shape and random
weights, as has the combiner: the contextual one, which is the default of ibidem, or the paper's (--combiner). The
queries are recorded while the memory's own model translates --text with beams. Without --text every hypothesis searches
near another key, so that hypotheses probe different lists and share no search. The systems translate the same batches
in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import FSMTConfig, FSMTForConditionalGeneration

from ibidem.combine import (
    AdaptiveCombiner,
    Combiner,
    ContextualCombiner,
    ContextualNetwork,
    DeviceSourceProjection,
    EntryTable,
    MetaK,
    place_combiner,
)
from ibidem.compact import NetworkCompactor, place_compactor
from ibidem.decode import BaseScorer, BeamSearcher, MemoryScorer, SearchSettings, Translator
from ibidem.decode.scorer import make_scorer
from ibidem.evaluate import describe_machine
from ibidem.evaluate.bench import System, run_benchmark
from ibidem.memory import Memory
from ibidem.model import BaseModel, load_model
from ibidem.retrieve import ArrayKeys, CompactedIndex, build_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.combine import StepContext
    from ibidem.decode import Retrieved, Scorer
    from ibidem.retrieve import Index, Keys

_VOCABULARY = 42_024
# Entries of a sentence, and dimensions of a source vector.
_SENTENCE = 14
_SOURCE_SIZE = 64
# The largest deviation of a unit of the compactor's hidden layer from 0.5.
_DEVIATION = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-m", "--memory", type=Path, help="memory whose compact keys are searched (default: random keys)"
    )
    parser.add_argument("--text", type=Path, help="sentences in the memory's source language, which give the queries")
    parser.add_argument("--entries", type=int, default=4_300_000, help="number of random keys")
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--index", nargs="+", default=["auto"], help="settings, as for ibidem index; each is a system")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--combiner", default="contextual", choices=["contextual", "adaptive"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--source", type=int, default=24, help="tokens per source")
    parser.add_argument("--steps", type=int, default=32, help="tokens per translation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--no-generate", action="store_true", help="omit transformers' generate()")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16", "int8"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    model = random_model(arguments.device, arguments.dtype)
    scorers = random_scorers(arguments, model)
    settings = SearchSettings(beam=arguments.beam, max_length_ratio=0.0, max_length_extra=arguments.steps)
    systems = [make_system("base", model, settings, BaseScorer())]
    systems += [make_system(name, model, settings, scorer) for name, scorer in scorers.items()]
    if not arguments.no_generate:
        plain = model if arguments.dtype != "int8" else random_model(arguments.device, "float32")
        systems.append(make_generate_system(plain, arguments.steps))
    generator = np.random.default_rng(arguments.seed)
    sources = [
        [*generator.integers(10, _VOCABULARY, arguments.source - 1).tolist(), model.tokens.eos]
        for _ in range(max(arguments.sentences, *arguments.batches))
    ]
    benchmarks = []
    for batch in arguments.batches:
        count = min(len(sources), max(batch, 8 * batch if batch < 8 else 64))
        found = run_benchmark(
            systems, sources[:count], batch=batch, beam=arguments.beam, rounds=arguments.rounds, device=model.device
        )
        benchmarks.append(found.to_json())
        for name in [system.name for system in systems]:
            steps = found.speed(name) / batch
            print(f"batch {batch} x beam {arguments.beam}: {name:20} {1000 / steps:8.3f} ms a step", flush=True)
        for memory in scorers:
            ratios = {s.name: found.ratio(memory, s.name) for s in systems if s.name not in scorers}
            shown = ", ".join(f"{name}: {ratio:.3f}" for name, ratio in ratios.items())
            print(f"  {memory} over {shown}", flush=True)
    report = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "indexes": {name: scorer.index.description for name, scorer in scorers.items()},
        "entries": next(iter(scorers.values())).index.size,
        "threads": torch.get_num_threads(),
        "benchmarks": benchmarks,
        "machine": describe_machine(),
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def random_model(device: str, dtype: str) -> BaseModel:
    """Make an FSMT model of WMT19's size, with the shipped model's tokenizer for its special tokens."""
    tokens = load_model(None, device="cpu").tokens
    special = {"pad_token_id": tokens.pad, "eos_token_id": tokens.eos, "decoder_start_token_id": tokens.start[0]}
    config = FSMTConfig(
        langs=["de", "en"],
        src_vocab_size=_VOCABULARY,
        tgt_vocab_size=_VOCABULARY,
        d_model=1024,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=8192,
        decoder_ffn_dim=8192,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        bos_token_id=tokens.start[0],
        forced_eos_token_id=None,
        **special,
    )
    torch.manual_seed(0)
    network: Any = FSMTForConditionalGeneration(config)
    network.generation_config.max_length = None
    for name, value in special.items():
        setattr(network.generation_config, name, value)
    wanted = torch.float32 if dtype == "int8" else getattr(torch, dtype)
    return BaseModel("random, WMT19's size", network.to(device, wanted), tokens, int8=dtype == "int8")


def random_scorers(arguments: argparse.Namespace, model: BaseModel) -> dict[str, FixedStatesScorer]:
    """Make a scorer for each setting: a compactor of the paper's shape, an index, and a combiner."""
    keys = make_keys(arguments)
    generator = torch.Generator().manual_seed(arguments.seed)
    indexes = {
        setting: build_index(keys, setting, device=model.device, seed=arguments.seed) for setting in arguments.index
    }
    network = NetworkCompactor(model.dimension, 4 * keys.dimension, keys.dimension, "sigmoid").requires_grad_(False)
    index, rows = indexes[arguments.index[0]], {arguments.beam * batch for batch in arguments.batches}
    if arguments.text is None:
        queries = {count: draw_queries(keys, index, count, generator)[None] for count in rows}
    else:
        queries = {count: record_queries(arguments, count // arguments.beam) for count in rows}
    states = {count: states.to(model.device) for count, states in invert(network, queries).items()}
    compactor = place_compactor(network, model.device, int16=model.arithmetic == "int8")
    table = random_table(keys.size, model, generator)
    combiner = place_combiner(random_combiner(arguments.combiner, arguments.k), model.device)
    return {
        "memory" if len(indexes) == 1 else f"memory, {setting}": FixedStatesScorer(
            make_scorer(CompactedIndex(index, compactor), table, combiner), states
        )
        for setting, index in indexes.items()
    }


def random_combiner(kind: str, k: int) -> Combiner:
    """Make a combiner with random weights."""
    if kind == "adaptive":
        return AdaptiveCombiner(MetaK(k, 1.0).requires_grad_(False), 10.0)
    return ContextualCombiner(ContextualNetwork(k, 1.0).requires_grad_(False))


def random_table(entries: int, model: BaseModel, generator: torch.Generator) -> EntryTable:
    """Make the tokens, log-probabilities and source vectors of entries, at random."""
    sentences = -(-entries // _SENTENCE)
    return EntryTable(
        torch.randint(10, _VOCABULARY, (entries,), generator=generator).to(model.device),
        -torch.rand(entries, generator=generator).half().to(model.device),
        (torch.arange(entries, dtype=torch.int32) // _SENTENCE).to(model.device),
        torch.randint(-127, 128, (sentences, _SOURCE_SIZE), generator=generator, dtype=torch.int8).to(model.device),
        DeviceSourceProjection(
            torch.zeros(model.dimension, device=model.device),
            torch.randn(model.dimension, _SOURCE_SIZE, generator=generator).to(model.device),
        ),
    )


def draw_queries(keys: Keys, index: Index, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return keys [count, c], each moved by half the distance to its nearest other key.

    A search for such a query takes as long as one for the state of a real hypothesis.
    """
    entries = torch.randint(keys.size, (count,), generator=generator)
    drawn = torch.from_numpy(keys.gather(entries.numpy()).astype(np.float32))
    direction = torch.randn(drawn.shape, generator=generator)
    step = index.search(drawn, 2).distances[:, 1:].cpu().sqrt() / 2
    return torch.addcmul(drawn, direction / direction.norm(dim=1, keepdim=True), step)


def record_queries(arguments: argparse.Namespace, batch: int) -> torch.Tensor:
    """Record compact states [steps, rows, c] of the hypotheses while the memory's model translates the text in batches.

    A state is NaN where a hypothesis retrieved nothing. Each batch is recorded until its first sentence is complete.
    """
    settings = SearchSettings(beam=arguments.beam)
    translator = Translator(memory=arguments.memory, settings=settings, batch_size=batch, device="cpu")
    scorer: Any = translator.scorer
    recorded: list[torch.Tensor] = []

    class Recorder:
        memories, supports_cuda_graph = scorer.memories, False

        def retrieve(self, states: torch.Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
            if len(states) == batch * arguments.beam:
                recorded.append(scorer.index.compactor(states))
            retrieved: Retrieved = scorer.retrieve(states, group_size, context)
            return retrieved

    translator.translate(arguments.text.read_text(encoding="utf-8").splitlines(), scorer=Recorder())
    if not recorded:
        raise SystemExit(f"{arguments.text} has too few sentences for a batch of {batch}. Add more sentences.")
    return torch.stack(recorded)


def invert(network: NetworkCompactor, queries: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return states [steps, rows, d] whose compact states are queries [steps, rows, c]; scale the outer layer."""
    flat = torch.cat([some.flatten(0, 1) for some in queries.values()])
    flat = flat[flat.isfinite().all(1)]
    middle, inverse = flat.mean(0), torch.linalg.pinv(network.outer.weight).T
    scale = float(((flat - middle) @ inverse).abs().max()) / _DEVIATION
    network.outer.weight.mul_(scale)
    network.outer.bias.copy_(middle - network.outer.weight.sum(1) / 2)
    wanted = {rows: torch.logit(0.5 + (some - middle) @ inverse / scale) for rows, some in queries.items()}
    inverse = torch.linalg.pinv(network.inner.weight).T
    return {rows: (some - network.inner.bias) @ inverse for rows, some in wanted.items()}


class FixedStatesScorer:
    """A scorer that replaces the decoder states by given states [steps, rows, d], in turn."""

    def __init__(self, scorer: MemoryScorer, states: dict[int, torch.Tensor]) -> None:
        self._scorer = scorer
        self._states = {rows: itertools.cycle(some.unbind()) for rows, some in states.items()}

    def retrieve(self, states: torch.Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        return self._scorer.retrieve(next(self._states[len(states)]), group_size, context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)


def make_keys(arguments: argparse.Namespace) -> Keys:
    """Return a memory's keys, or random ones."""
    if arguments.memory is not None:
        return Memory.open(arguments.memory).search_keys
    generator = np.random.default_rng(arguments.seed)
    keys = np.empty((arguments.entries, arguments.dimension), np.float16)
    for start in range(0, len(keys), 1 << 20):
        part = keys[start : start + (1 << 20)]
        part[:] = generator.standard_normal(part.shape, dtype=np.float32)
    return ArrayKeys(keys)


def make_system(name: str, model: BaseModel, settings: SearchSettings, scorer: Scorer) -> System:
    searcher = BeamSearcher(model)

    def translate(batch: Sequence[Sequence[int]], _: int) -> int:
        return sum(len(best[0].tokens) for best in searcher(batch, settings, scorer))

    return System(name, translate)


def make_generate_system(model: BaseModel, steps: int) -> System:
    @torch.inference_mode()
    def translate(batch: Sequence[Sequence[int]], beam: int) -> int:
        ids, mask = model.pad(batch)
        found = model.network.generate(
            input_ids=ids,
            attention_mask=mask,
            num_beams=beam,
            do_sample=False,
            min_new_tokens=steps,
            max_new_tokens=steps,
            early_stopping=False,
        )
        return int(found.shape[0] * (found.shape[1] - 1))

    return System("generate()", translate)


if __name__ == "__main__":
    main()
