"""What the fast path costs in quality: against transformers' own `generate()` in float32, the memory searched exactly.

    python benchmarks/fast_path.py -m memories/it --text DE EN --device cuda --out fast_path.json
    python benchmarks/fast_path.py -m memories/it --text DE EN \
        --oracle-index 'native;nprobe=5000;prune_ratio=2.6;rerank=80'

The fast path translates as `ibidem translate` does without any options. On a CPU exact search through millions of keys
takes hours: --oracle-device cuda lets a GPU do that part, or an index that looks so far that it misses next to nothing
can stand for it, and its recall is reported.
Sources of one length make a batch of `generate()`, so that both searches have the same limits. Of the line that makes
most of the difference, BLEU without it is told too: one long line can be worth tenths.
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
    parser.add_argument("--oracle-device", help="where the oracle runs; else --device")
    parser.add_argument("--parts", action="store_true", help="also with one part of the fast path at a time left out")
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
    wanted = generate(slow, oracle, sources, settings, arguments.batch_size)
    fast = load_model(name, device=device, dtype="auto")

    def judge(model: BaseModel, index: str | None, within: float | None = None) -> dict[str, object]:
        how = replace(settings, retrieval_margin=within)
        translator = Translator(model, memory, settings=how, batch_size=arguments.batch_size, index=index)
        scorer = translator.scorer
        assert isinstance(scorer, MemoryScorer)  # of one memory
        return {"index": scorer.index.description, **differences(wanted, translator.translate(sources), references)}

    report = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "lines": len(sources),
        "oracle": oracle.index.description,
        "arithmetic": fast.arithmetic,
        "fast": judge(fast, None),
        "machine": describe_machine(),
    }
    if arguments.parts:
        report["fast, but for the search"] = judge(fast, arguments.oracle_index)
        report["fast, but for float32"] = judge(load_model(name, device=device, dtype="float32"), None)
        report["fast, but all hypotheses ask"] = judge(fast, None, math.inf)
    print(json.dumps(report, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def differences(wanted: list[str], found: list[str], references: list[str]) -> dict[str, object]:
    """How far translations are from those that were wanted."""
    line = heaviest_line(wanted, found, references)
    return {
        "lines that differ": sum(one != other for one, other in zip(found, wanted, strict=True)),
        "scores": {
            one.metric: {"oracle": one.baseline, "this": one.system, "p": one.p_value}
            for one in compare(wanted, found, references)
        },
        "heaviest line": None if line is None else {"number": line.number, "oracle": line.before, "this": line.after},
    }


@torch.inference_mode()
def generate(
    model: BaseModel, scorer: Scorer, sources: Sequence[str], settings: SearchSettings, batch_size: int
) -> list[str]:
    """The translations of sources by `generate()` with a memory."""
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
