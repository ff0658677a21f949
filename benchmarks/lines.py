"""Find the line that contributes most to the difference between two translations of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sacrebleu
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Line(NamedTuple):
    """The number of a line, from 1, and the BLEU of both translations without it."""

    number: int
    before: float
    after: float


def heaviest_line(before: Sequence[str], after: Sequence[str], references: Sequence[str]) -> Line | None:
    """Return the line without which the difference in BLEU changes most; None if no line differs."""
    metric = sacrebleu.BLEU()
    counts = [
        torch.tensor(metric._extract_corpus_statistics(list(lines), [list(references)])) for lines in (before, after)
    ]
    totals = [of_lines.sum(0) for of_lines in counts]

    def score(numbers: Tensor) -> float:
        return float(metric._compute_score_from_stats(numbers.tolist()).score)

    def without(line: int) -> list[float]:
        return [score(total - of_lines[line]) for total, of_lines in zip(totals, counts, strict=True)]

    difference = score(totals[1]) - score(totals[0])
    differ = [line for line, both in enumerate(zip(before, after, strict=True)) if both[0] != both[1]]
    scores = {line: without(line) for line in differ}
    if not scores:
        return None
    heaviest = max(scores, key=lambda line: abs(difference - (scores[line][1] - scores[line][0])))
    return Line(heaviest + 1, *scores[heaviest])
