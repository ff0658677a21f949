"""Measure the cost of extraction, compared with the forward passes that it needs.

    python benchmarks/extraction.py --train train.tsv [--compactor FILE] [--int8] [--device cuda] [--rounds 3]

All variants process the same batches, interleaved; the report has the ratios of the medians. The bare pass computes
nothing but logits in float32; extraction also reads and encodes text, computes log-probabilities, and writes and
checksums the memory. --compactor adds extraction into its space, --int8 adds extraction in int8. On a CPU seconds are
the processor time of all threads of the process; on CUDA they are elapsed time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from ibidem.evaluate import describe_machine
from ibidem.learn import ExtractSettings, cut_chunks, extract, make_batches
from ibidem.model import BaseModel, load_model
from ibidem.text import Corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True, help="parallel text, as for ibidem extract")
    parser.add_argument("--model", help="folder or name (default: the shipped model)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--compactor", type=Path, help="also time extraction into its space")
    parser.add_argument("--int8", action="store_true", help="also time extraction in int8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = load_model(arguments.model, device=arguments.device)
    settings = ExtractSettings(batch_tokens=arguments.batch_tokens)
    variants: dict[str, tuple[BaseModel, Path | None]] = {"extraction": (model, None)}
    if arguments.compactor:
        variants["compacted"] = model, arguments.compactor
    if arguments.int8:
        variants["int8"] = load_model(arguments.model, device=arguments.device, dtype="int8"), None
    seconds: dict[str, list[float]] = {"bare": [], **{variant: [] for variant in variants}}
    entries = 0
    for _ in range(arguments.rounds):
        bare, entries = time_bare(model, Corpus(arguments.train), settings)
        seconds["bare"].append(bare)
        for variant, (used, compactor) in variants.items():
            seconds[variant].append(time_extraction(used, Corpus(arguments.train), settings, compactor))
    report = {
        "entries": entries,
        **{f"{variant}_seconds": times for variant, times in seconds.items()},
        "tokens_per_second": entries / statistics.median(seconds["extraction"]),
        **{
            f"speed_of_{variant}_over_bare": statistics.median(seconds["bare"]) / statistics.median(seconds[variant])
            for variant in variants
        },
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=2))


@torch.inference_mode()
def time_bare(model: BaseModel, corpus: Corpus, settings: ExtractSettings) -> tuple[float, int]:
    """Return the seconds of the model's forward passes with logits over the batches of extraction, and its entries."""
    chunks = list(cut_chunks(corpus, model.tokens, settings.segment_entries(model.dimension), corpus.counts))
    pad, start = model.tokens.pad, model.tokens.start
    entries = 0
    seconds = 0.0
    for chunk in chunks:
        for rows in make_batches(chunk.sources, chunk.targets, settings.batch_tokens):
            sources = _pad([chunk.sources[i] for i in rows], pad, model.device)
            inputs = _pad([[*start, *chunk.targets[i][:-1]] for i in rows], pad, model.device)
            began = clock(model)
            model.network(
                input_ids=sources,
                attention_mask=sources.ne(pad).long(),
                decoder_input_ids=inputs,
                use_cache=False,
            )
            seconds += clock(model) - began
        entries += chunk.entries
    return seconds, entries


def time_extraction(model: BaseModel, corpus: Corpus, settings: ExtractSettings, compactor: Path | None) -> float:
    """Return the seconds of a whole extraction, from text to a committed memory."""
    with tempfile.TemporaryDirectory() as folder:
        began = clock(model)
        extract(model, corpus, Path(folder) / "memory", settings=settings, compactor=compactor)
        return clock(model) - began


def clock(model: BaseModel) -> float:
    """Wait for all work so far, then return the seconds since a fixed moment."""
    if model.device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _pad(sequences: list[list[int]], pad: int, device: torch.device) -> torch.Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad] * (longest - len(ids))] for ids in sequences], device=device)


if __name__ == "__main__":
    main()
