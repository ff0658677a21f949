"""A memory beside a model of WMT19's size (6 + 6 layers, 1024, 8192, 42,024 tokens) with random weights.

    python benchmarks/large_model.py --device cuda --dtype float16 --entries 4300000 --out large_model.json
    python benchmarks/large_model.py -m memories/it --device cuda --dtype float16 --index exact int8 'lists;nprobe=128'
    python benchmarks/large_model.py -m memories/it --dtype int8 --batches 1 32

Speed does not depend on what weights say, so a model that cannot be shipped is measured without it. Random weights
never end a sentence: every translation is as long as --steps allows, the same for all contenders. Keys are a memory's
own compact ones (-m), or random ones, which an exact search takes as long for; the compactor and the Meta-k Network
have the paper's shapes and random weights. Every hypothesis asks for the surroundings of a key of its own, so that not
all look into the same lists. The contenders run the same batches in turn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import FSMTConfig, FSMTForConditionalGeneration

from ibidem.combine import AdaptiveCombiner, MetaK
from ibidem.compact import Compactor, NetworkCompactor, place_compactor
from ibidem.decode import BaseScorer, MemoryScorer, Searcher, SearchSettings
from ibidem.decode.consulting import make_scorer
from ibidem.decode.mounting import place
from ibidem.evaluate import describe_machine
from ibidem.evaluate.bench import Contender, race
from ibidem.memory import Memory
from ibidem.model import BaseModel, load_model
from ibidem.retrieve import ArrayKeys, CompactedIndex, build_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Scorer
    from ibidem.retrieve import Keys

_VOCABULARY = 42_024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", type=Path, help="whose compact keys are searched; else random ones")
    parser.add_argument("--entries", type=int, default=4_300_000, help="number of random keys")
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--index", nargs="+", default=["auto"], help="settings, as for ibidem index, each a contender")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--source", type=int, default=24, help="tokens of a source")
    parser.add_argument("--steps", type=int, default=32, help="tokens of a translation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--no-generate", action="store_true", help="leave transformers' own search out")
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
    contenders = [ours("base", model, settings, BaseScorer())]
    contenders += [ours(name, model, settings, scorer) for name, scorer in scorers.items()]
    if not arguments.no_generate:
        plain = model if arguments.dtype != "int8" else random_model(arguments.device, "float32")
        contenders.append(transformers_own(plain, arguments.steps))
    generator = np.random.default_rng(arguments.seed)
    sources = [
        [*generator.integers(10, _VOCABULARY, arguments.source - 1).tolist(), model.tokens.eos]
        for _ in range(max(arguments.sentences, *arguments.batches))
    ]
    races = []
    for batch in arguments.batches:
        count = min(len(sources), max(batch, 8 * batch if batch < 8 else 64))
        found = race(
            contenders, sources[:count], batch=batch, beam=arguments.beam, rounds=arguments.rounds, device=model.device
        )
        races.append(found.to_json())
        for name in [contender.name for contender in contenders]:
            steps = found.speed(name) / batch
            print(f"batch {batch} x beam {arguments.beam}: {name:20} {1000 / steps:8.3f} ms a step", flush=True)
        for memory in scorers:
            ratios = {c.name: found.ratio(memory, c.name) for c in contenders if c.name not in scorers}
            shown = ", ".join(f"{name}: {ratio:.3f}" for name, ratio in ratios.items())
            print(f"  {memory} over {shown}", flush=True)
    report = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "indexes": {name: scorer.index.description for name, scorer in scorers.items()},
        "entries": next(iter(scorers.values())).index.size,
        "threads": torch.get_num_threads(),
        "races": races,
        "machine": describe_machine(),
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def random_model(device: str, dtype: str) -> BaseModel:
    """FSMT of WMT19's size, with the shipped model's tokenizer for its special tokens."""
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


def random_scorers(arguments: argparse.Namespace, model: BaseModel) -> dict[str, MemoryScorer]:
    """For each setting an index over the keys behind a compactor of the paper's shape, and a Meta-k Network."""
    keys = given_keys(arguments)
    generator = torch.Generator().manual_seed(arguments.seed)
    asked = torch.randint(keys.size, (arguments.beam * 2 * max(arguments.batches),), generator=generator)
    places = torch.from_numpy(keys.gather(asked.numpy()).astype(np.float32)).to(model.device)
    network = NetworkCompactor(model.dimension, 4 * keys.dimension, keys.dimension, "sigmoid").requires_grad_(False)
    compactor: Any = Near(place_compactor(network, model.device), places)
    values = torch.randint(10, _VOCABULARY, (keys.size,), generator=generator).to(model.device)
    combiner = place(AdaptiveCombiner(MetaK(arguments.k, 1.0).requires_grad_(False), 10.0), model.device)
    scorers = {}
    for setting in arguments.index:
        index = build_index(keys, setting, device=model.device, seed=arguments.seed)
        name = "memory" if len(arguments.index) == 1 else f"memory, {setting}"
        scorers[name] = make_scorer(CompactedIndex(index, compactor), values, combiner)
    return scorers


class Near:
    """A compactor whose compact states lie near given places [rows, c], each row near its own."""

    def __init__(self, compactor: Compactor, places: torch.Tensor) -> None:
        self._compactor = compactor
        self._places = places

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return torch.add(self._places[: len(states)], self._compactor(states), alpha=0.1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compactor, name)


def given_keys(arguments: argparse.Namespace) -> Keys:
    if arguments.memory is not None:
        return Memory.open(arguments.memory).search_keys
    generator = np.random.default_rng(arguments.seed)
    keys = np.empty((arguments.entries, arguments.dimension), np.float16)
    for start in range(0, len(keys), 1 << 20):
        part = keys[start : start + (1 << 20)]
        part[:] = generator.standard_normal(part.shape, dtype=np.float32)
    return ArrayKeys(keys)


def ours(name: str, model: BaseModel, settings: SearchSettings, scorer: Scorer) -> Contender:
    searcher = Searcher(model)

    def translate(batch: Sequence[Sequence[int]], _: int) -> int:
        return sum(len(best[0].tokens) for best in searcher(batch, settings, scorer))

    return Contender(name, translate)


def transformers_own(model: BaseModel, steps: int) -> Contender:
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

    return Contender("generate()", translate)


if __name__ == "__main__":
    main()
