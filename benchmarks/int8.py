"""Compare translations in int8 with those in float32 on the same text, by line and by token.

    ibidem evaluate --dtype float32 --test DE --test EN --save out/float32
    ibidem evaluate --dtype int8 --test DE --test EN --save out/int8
    python benchmarks/int8.py --text DE EN --translations out/float32/base.txt out/int8/base.txt [--draws 8]

The report has BLEU of both with a paired bootstrap, the number of lines that differ, the line that contributes most to
the difference, BLEU without it, and the difference in log-probability of the reference tokens (of `--pairs` pairs,
evenly drawn). With `--draws` that line is also translated in float32 with noise on the inputs of all linear layers,
uniform and `--noise` int8 steps wide, each time with another seed. This shows the effect of chance.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sacrebleu
import torch
from lines import heaviest_line
from torch.nn.functional import linear

from ibidem.decode import Translator
from ibidem.evaluate import compare, describe_machine
from ibidem.model import BaseModel, FastMarian, load_model
from ibidem.model.linear import quantise_rows
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="the parallel text that was translated")
    parser.add_argument("--translations", nargs=2, type=Path, required=True, metavar=("FLOAT32", "INT8"))
    parser.add_argument("--pairs", type=int, default=200, help="number of pairs whose tokens are scored")
    parser.add_argument("--draws", type=int, default=0, help="number of translations of the line with noise")
    parser.add_argument(
        "--noise", type=float, nargs="+", default=[0.03, 0.1, 0.3, 1.0], help="width of the noise in int8 steps"
    )
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pairs = list(Corpus(arguments.text))
    references = [pair.target for pair in pairs]
    before, after = (read_lines(path) for path in arguments.translations)
    report = compare_lines(before, after, references)
    model = load_model(device="cpu")
    every = max(1, len(pairs) // max(1, arguments.pairs))
    report["tokens"] = compare_tokens(model, [(pair.source, pair.target) for pair in pairs[::every]])
    if arguments.draws and "line" in report:
        place = report["line"]["number"] - 1
        report["line"]["noise"] = {
            width: translate_with_noise(model, pairs[place].source, references[place], width, arguments.draws)
            for width in arguments.noise
        }
    report["machine"] = describe_machine()
    print(json.dumps(report, indent=1))


def read_lines(path: Path) -> list[str]:
    """Read the lines that `ibidem evaluate --save` wrote; only a newline ends a line."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def compare_lines(before: Sequence[str], after: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return BLEU of both and the line that contributes most to the difference."""
    whole = compare(before, after, references)[0]
    report: dict[str, Any] = {
        "lines": len(references),
        "lines that differ": sum(one != other for one, other in zip(before, after, strict=True)),
        "float32": whole.baseline,
        "int8": whole.system,
        "p": whole.p_value,
        "interval": [whole.low, whole.high],
        "length of int8's translations": length_of(after) / length_of(before),
    }
    line = heaviest_line(before, after, references)
    if line is not None:
        report["line"] = {"number": line.number, "float32 without it": line.before, "int8 without it": line.after}
    return report


def length_of(lines: Sequence[str]) -> int:
    """Return the number of BLEU's tokens."""
    tokenize = sacrebleu.BLEU().tokenizer
    return sum(len(tokenize(line).split()) for line in lines)


def compare_tokens(model: BaseModel, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return the effect of int8 on the log-probabilities of given translations' tokens, in nats."""
    rounded = load_model(device="cpu", dtype="int8")
    differences = []
    for source, target in pairs:
        ids = model.tokens.encode_sources([source]), model.tokens.encode_targets([target])
        differences.append(rounded.force_decode(*ids)[1] - model.force_decode(*ids)[1])
    moved = torch.cat(differences)
    return {
        "tokens": len(moved),
        "mean difference": float(moved.mean()),
        "root mean square": float(moved.square().mean().sqrt()),
    }


class NoisyLinear:
    """A layer in float32 whose inputs get uniform noise of `width` int8 steps."""

    def __init__(self, width: float, generator: torch.Generator, weight: Tensor, bias: Tensor | None) -> None:
        self._width = width
        self._generator = generator
        self._weight, self._bias = weight.detach(), bias

    def __call__(self, x: Tensor) -> Tensor:
        steps = quantise_rows(x.reshape(-1, x.shape[-1])).step.view(*x.shape[:-1], 1)
        noise = torch.rand(x.shape, generator=self._generator) - 0.5
        return linear(x + self._width * steps * noise, self._weight, self._bias)


@torch.inference_mode()
def translate_with_noise(model: BaseModel, source: str, reference: str, width: float, draws: int) -> list[str]:
    """Return the sentence's BLEU and its length in BLEU's tokens for each draw."""
    found = []
    for seed in range(draws):
        noisy = BaseModel(model.name, model.network, model.tokens)
        generator = torch.Generator().manual_seed(seed)
        # The model builds its engine from this cached property at the first use.
        noisy.__dict__["fast_marian"] = FastMarian(
            model.network, model.projection, model.network.final_logits_bias, partial(NoisyLinear, width, generator)
        )
        (text,) = Translator(noisy).translate([source])
        score = sacrebleu.sentence_bleu(str(text), [reference])
        found.append(f"{score.score:.1f}, {score.sys_len} tokens")
    return found


if __name__ == "__main__":
    main()
