"""Compare the base model and a memory with CTranslate2, with and without lexical shortlists (as Marian has them).

    python benchmarks/shortlist.py --train DATA/general/train.de DATA/general/train.en --text DATA/news/test.de \\
        DATA/news/test.en -m memories/koran --sentences 96 --rounds 5 --output shortlist.json

The shortlist of a batch has the `--candidates` likeliest target tokens of each source token, by the translation
probabilities of IBM model 1 (three iterations over `--pairs` pairs of the training text), and the `--frequent` most
frequent target tokens. Everything runs in int8 on one thread, with the same beam. Speeds are ratios of processor time,
of medians of rounds in which the systems take turns; a memory on text of another domain costs the time that it costs
elsewhere. BLEU of `--scored` lines has differences with a two-sided paired bootstrap of 10,000 samples: value, ends of
the 95 % interval, p. Lines are translated whole.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.decode import BaseScorer, BeamSearcher, SearchSettings, load_memory_scorer
from ibidem.evaluate import compare, describe_machine, score
from ibidem.evaluate.bench import base_system, ctranslate2_search, ctranslate2_system, memory_system, run_benchmark
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.model import BaseModel

BATCHES = (1, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True, help="training text of the shortlists")
    parser.add_argument("--text", nargs="+", required=True, help="the test set")
    parser.add_argument("-m", "--memory")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--frequent", type=int, default=100)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=96, help="timed sentences, spread over the test set")
    parser.add_argument("--scored", type=int, default=500, help="lines whose BLEU is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(device="cpu", dtype="int8")
    shortlist = make_shortlist(model, arguments.train, arguments.pairs, arguments.candidates, arguments.frequent)
    pairs = list(Corpus(arguments.text))
    plain = load_model(device="cpu", dtype="float32")  # CTranslate2 quantises it itself
    systems = [base_system(model), ctranslate2_system(plain), ctranslate2_system(plain, "shortlist", shortlist)]
    if arguments.memory is not None:
        systems.append(memory_system(model, load_memory_scorer(Memory.open(arguments.memory), model)))
    timed = pairs[:: max(1, len(pairs) // arguments.sentences)][: arguments.sentences]
    sources = model.tokens.encode_sources([pair.source for pair in timed])
    report: dict[str, Any] = {
        "pairs": arguments.pairs,
        "candidates": arguments.candidates,
        "frequent": arguments.frequent,
        "beam": arguments.beam,
        "tokens of a sentence's shortlist": float(np.mean([len(allowed(shortlist, source)) for source in sources])),
        "vocabulary": len(model.tokens.vocabulary()),
        "speed": {},
    }
    for batch in BATCHES:
        rounds = run_benchmark(systems, sources, batch=batch, beam=arguments.beam, rounds=arguments.rounds).rounds
        seconds = {name: [done.processor_seconds for done in found] for name, found in rounds.items()}
        report["speed"][f"batches of {batch}, over CTranslate2"] = {
            name: {
                "median": round(median(ratios), 3),
                "rounds": [round(ratio, 3) for ratio in ratios],
            }
            for name, own in seconds.items()
            if (ratios := [a / b for a, b in zip(seconds["CTranslate2"], own, strict=True)])
        }
    report |= measure_quality(model, plain, shortlist, pairs[: arguments.scored], arguments.beam)
    report["machine"] = describe_machine()
    print(json.dumps(report, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure_quality(
    model: BaseModel, plain: BaseModel, shortlist: dict[int, list[int]], pairs: Sequence[Any], beam: int
) -> dict[str, Any]:
    """Return BLEU and chrF of our search, CTranslate2 and the shortlist, and their differences from CTranslate2."""
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    searcher, settings = BeamSearcher(model), SearchSettings(beam=beam)
    sources = model.tokens.encode_sources(texts)
    # One sentence at a time, since a batch is translated with the shortlists of all its sentences.
    found = {"base": [searcher([source], settings, BaseScorer())[0][0].tokens for source in sources]}
    for name, tokens in (("CTranslate2", None), ("shortlist", shortlist)):
        search = ctranslate2_search(plain, tokens)
        found[name] = [search([source], beam)[0] for source in sources]
    lines = {name: [model.tokens.decode(tokens) for tokens in each] for name, each in found.items()}
    return {
        "lines": len(texts),
        "scores": {
            name: {metric.name: round(metric.value, 2) for metric in score(each, references)}
            for name, each in lines.items()
        },
        "minus CTranslate2": {
            name: {
                one.metric: [round(value, 4) for value in (one.difference, one.low, one.high, one.p_value)]
                for one in compare(lines["CTranslate2"], lines[name], references)
            }
            for name in ("base", "shortlist")
        },
    }


def allowed(shortlist: dict[int, list[int]], source: Sequence[int]) -> set[int]:
    """Return the target tokens that the shortlist allows for a source."""
    return {token for piece in source for token in shortlist.get(piece, ())}


def make_shortlist(
    model: BaseModel, train: list[str], count: int, candidates: int, frequent: int
) -> dict[int, list[int]]:
    """Return the likeliest target tokens of each source token; those of the last token, which all sources have, include
    the most frequent ones and the end-of-sentence token.
    """
    pairs = list(islice(Corpus(train), count))
    tokens = model.tokens
    sources = tokens.encode_sources([pair.source for pair in pairs])
    targets = tokens.encode_targets([pair.target for pair in pairs])
    size = max(max(map(max, sources)), max(map(max, targets))) + 1
    found: dict[int, list[int]] = {}
    codes, probabilities = translation_probabilities(sources, targets, size)
    order = np.lexsort((-probabilities, codes // size))
    for code in codes[order].tolist():
        own = found.setdefault(code // size, [])
        if len(own) < candidates:
            own.append(code % size)
    counts = np.bincount(np.concatenate([np.array(target) for target in targets]), minlength=size)
    always = [*np.argsort(-counts)[:frequent].tolist(), tokens.eos]
    found[tokens.eos] = list(dict.fromkeys([*found.get(tokens.eos, []), *always]))
    return found


def translation_probabilities(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], size: int, iterations: int = 3
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the pairs of tokens that occur together, source * size + target, and p(target | source) of IBM model 1."""
    parts, lengths = [], []
    for source, target in zip(sources, targets, strict=True):
        own = np.array(source, np.int64)
        for token in target:
            parts.append(own * size + token)
            lengths.append(len(own))
    # One number for every source token of every target token; the group is the target token.
    codes, places = np.unique(np.concatenate(parts), return_inverse=True)
    groups = np.repeat(np.arange(len(lengths)), lengths)
    probabilities = np.ones(len(codes))
    rows = codes // size
    for _ in range(iterations):
        weights = probabilities[places]
        weights /= np.bincount(groups, weights)[groups]
        expected = np.bincount(places, weights, len(codes))
        probabilities = expected / np.bincount(rows, expected)[rows]
    return codes, probabilities


if __name__ == "__main__":
    main()
