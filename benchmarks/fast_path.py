"""Measure the quality of the fast path against transformers' `generate()` in float32 with exact search.

    python benchmarks/fast_path.py -m memories/it --text DE EN --device cuda --out fast_path.json
    python benchmarks/fast_path.py -m memories/it --text DE EN \
        --oracle-index 'native;nprobe=5000;prune_ratio=2.6;rerank=80'

The fast path translates like `ibidem translate` without options. On a CPU exact search through millions of keys takes
hours: use --oracle-device cuda, or an --oracle-index with wide search settings, whose recall is reported. A batch of
`generate()` has sources of one length, so that both searches have the same length limits. The report also has BLEU
without the line that contributes most to the difference, because one long line can change BLEU by tenths.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from lines import heaviest_line

from ibidem.decode import MemoryLogitsProcessor, MemoryScorer, SearchSettings, Translator, load_memory_scorer
from ibidem.evaluate import compare, describe_machine
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Scorer
    from ibidem.model import BaseModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="parallel text to translate")
    parser.add_argument("--oracle-index", default="exact", help="as for ibidem index")
    parser.add_argument("--oracle-device", help="device of the oracle (default: --device)")
    parser.add_argument("--parts", action="store_true", help="also measure without one part of the fast path at a time")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    pairs = list(Corpus(arguments.text))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    settings = SearchSettings(beam=arguments.beam)
    memory = Memory.open(arguments.memory)
    name, device = memory.identity.name, arguments.device
    slow = load_model(name, device=arguments.oracle_device or device, dtype="float32")
    oracle = load_memory_scorer(memory, slow, index=arguments.oracle_index)
    expected = generate(slow, oracle, sources, settings, arguments.batch_size)
    fast = load_model(name, device=device, dtype="auto")

    def measure(model: BaseModel, index: str | None, margin: float | None = None) -> dict[str, object]:
        search = replace(settings, retrieval_margin=margin)
        translator = Translator(model, memory, settings=search, batch_size=arguments.batch_size, index=index)
        scorer = translator.scorer
        assert isinstance(scorer, MemoryScorer)  # one memory is loaded
        translations = translator.translate(sources)
        return {"index": scorer.index.description, **compare_lines(expected, translations, references)}

    report = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "lines": len(sources),
        "oracle": oracle.index.description,
        "arithmetic": fast.arithmetic,
        "fast": measure(fast, None),
        "machine": describe_machine(),
    }
    if arguments.parts:
        report["fast, but oracle index"] = measure(fast, arguments.oracle_index)
        report["fast, but float32"] = measure(load_model(name, device=device, dtype="float32"), None)
        report["fast, but retrieval for all hypotheses"] = measure(fast, None, math.inf)
    print(json.dumps(report, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def compare_lines(expected: list[str], found: list[str], references: list[str]) -> dict[str, object]:
    """Compare translations with those of the oracle: differing lines, scores, and the heaviest line."""
    line = heaviest_line(expected, found, references)
    return {
        "lines that differ": sum(one != other for one, other in zip(found, expected, strict=True)),
        "scores": {
            one.metric: {"oracle": one.baseline, "this": one.system, "p": one.p_value, "interval": [one.low, one.high]}
            for one in compare(expected, found, references)
        },
        "heaviest line": None if line is None else {"number": line.number, "oracle": line.before, "this": line.after},
    }


@torch.inference_mode()
def generate(
    model: BaseModel, scorer: Scorer, sources: Sequence[str], settings: SearchSettings, batch_size: int
) -> list[str]:
    """Translate sources by `generate()` with a memory."""
    tokens = model.tokens
    ids = [one[: tokens.max_source_length] for one in tokens.encode_sources(sources)]
    translations = [""] * len(ids)
    order = sorted((row for row, one in enumerate(ids) if len(one) > 1), key=lambda row: len(ids[row]))
    with MemoryLogitsProcessor(model, scorer) as processor:
        for length, group in groupby(order, key=lambda row: len(ids[row])):
            rows = list(group)
            for batch in (rows[start : start + batch_size] for start in range(0, len(rows), batch_size)):
                padded, mask = model.pad([ids[row] for row in batch])
                chosen = model.network.generate(
                    input_ids=padded,
                    attention_mask=mask,
                    num_beams=settings.beam,
                    do_sample=False,
                    max_length=settings.limit(length, tokens.max_target_length) + len(tokens.start),
                    length_penalty=settings.length_penalty,
                    early_stopping=False,
                    logits_processor=[processor],
                )
                for row, one in zip(batch, chosen[:, len(tokens.start) :].tolist(), strict=True):
                    end = one.index(tokens.eos) if tokens.eos in one else len(one)
                    translations[row] = tokens.decode(one[:end])
    return translations


if __name__ == "__main__":
    main()
