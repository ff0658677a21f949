"""The check of a sample by the base model: pairs that are no translations, swapped sides, machine translation.

A target is a translation of its source if the model finds it more probable with this source than with another one. The
difference does not depend on how well the model knows the domain.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from ibidem.check.findings import Action, CheckReport, Example, Finding, make_example
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.check.text_check import Sampled
    from ibidem.model import BaseModel
    from ibidem.text import Pair

_BATCH_PAIRS = 32
# A target gains less than this, in natural logarithms for each token, from its own source: it is no translation of it.
_LEAST_GAIN = 0.25
_LEAST_TOTAL_GAIN = 4.0
# Sides are swapped if the model finds the opposite direction more probable by this, for each token.
_SWAPPED_MARGIN = 1.0
_REFUSED_SHARE = 0.5
_WARNED_SHARE = 0.02
_LEAST_SAMPLE = 8
# A target of this many tokens of which each is the most probable one is the model's own translation.
_LEAST_TOKENS = 8
_MACHINE_SHARE = 0.15
_SURE = float(np.log(0.5))


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of targets with given sources.

    Attributes:
        total: [n] sums over the tokens.
        tokens: [n] numbers of target tokens.
        least: [n] the lowest log-probability of a token.
    """

    total: NDArray[np.float64]
    tokens: NDArray[np.int64]
    least: NDArray[np.float64]

    @property
    def means(self) -> NDArray[np.float64]:
        """[n] log-probabilities for each token."""
        means: NDArray[np.float64] = self.total / self.tokens
        return means


def score_pairs(model: BaseModel, sources: Sequence[str], targets: Sequence[str]) -> Scores:
    """Compute the log-probability of each target with its source.

    Args:
        model: The base model.
        sources: n texts in the source language of the model.
        targets: n texts.
    """
    encoded = [ids[: model.tokens.max_source_length] for ids in model.tokens.encode_sources(sources)]
    wanted = [ids[: model.tokens.max_target_length] for ids in model.tokens.encode_targets(targets)]
    tokens = np.array([len(ids) for ids in wanted])
    total, least = np.zeros(len(wanted)), np.zeros(len(wanted))
    order = sorted(range(len(wanted)), key=lambda row: (len(wanted[row]), len(encoded[row])))
    for first in range(0, len(order), _BATCH_PAIRS):
        rows = order[first : first + _BATCH_PAIRS]
        _, found = model.force_decode([encoded[row] for row in rows], [wanted[row] for row in rows])
        values, place = found.cpu().numpy(), 0
        for row in rows:
            part = values[place : place + tokens[row]]
            total[row], least[row] = part.sum(), part.min()
            place += tokens[row]
    return Scores(total, tokens, least)


def check_sample(
    report: CheckReport,
    sample: Sequence[Sampled],
    model: BaseModel,
    *,
    seed: int = 0,
    seconds: float = 120.0,
    examples: int = 3,
    progress: Progress = silent,
) -> None:
    """Score a sample with the base model and add the findings to a report.

    Args:
        report: The report of the text check; it receives the findings and the figures of the sample.
        sample: The pairs.
        model: The base model.
        seed: The seed by which each source gets the target of another pair.
        seconds: The time after which no further part of the sample is scored.
        examples: Examples of each finding.
        progress: Receives the number of scored pairs.
    """
    pairs = [one.pair for one in sorted(sample)]
    random.Random(seed).shuffle(pairs)  # so that an end by time leaves a random sample
    if len(pairs) < 2:
        return
    own, other, turned = [], [], []
    end = monotonic() + seconds
    step = 2 * _BATCH_PAIRS
    done = 0
    # A part of one pair has no other source.
    while done < len(pairs) and (done == 0 or monotonic() < end) and len(pairs) - done >= 2:
        part = pairs[done : done + step]
        sources, targets = [pair.source for pair in part], [pair.target for pair in part]
        own.append(score_pairs(model, sources, targets))
        other.append(score_pairs(model, [*sources[1:], sources[0]], targets))
        turned.append(score_pairs(model, targets, sources))
        done += len(part)
        progress("Scoring a sample", done / len(pairs), done, "pairs")
    _report(report, pairs[:done], *map(_join, (own, other, turned)), examples=examples)


def _join(parts: Sequence[Scores]) -> Scores:
    return Scores(
        np.concatenate([part.total for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.least for part in parts]),
    )


def _report(
    report: CheckReport, pairs: Sequence[Pair], own: Scores, other: Scores, turned: Scores, *, examples: int
) -> None:
    count = len(pairs)
    swapped = turned.means > own.means + _SWAPPED_MARGIN
    gain = own.total - other.total
    unlike = (gain < _LEAST_TOTAL_GAIN) & (gain < _LEAST_GAIN * own.tokens) & ~swapped
    long = own.tokens >= _LEAST_TOKENS
    machine = (own.least > _SURE) & long
    report.sample = {
        "pairs": count,
        "log_probability": round(float(own.total.sum() / own.tokens.sum()), 3),
        "gain": round(float(gain.sum() / own.tokens.sum()), 3),
        "misaligned": int(unlike.sum()),
        "swapped": int(swapped.sum()),
        "most_probable": int(machine.sum()),
        "most_probable_of": int(long.sum()),
    }

    def show(mask: NDArray[np.bool_], order: NDArray[np.float64]) -> list[Example]:
        rows = [int(row) for row in np.argsort(order) if mask[row]][:examples]
        return [
            make_example(pairs[row].origin, pairs[row].location, pairs[row].source, pairs[row].target) for row in rows
        ]

    for name, mask, order, what in (
        ("misaligned", unlike, gain / own.tokens, "are no translations of their sources for the model"),
        ("swapped by likelihood", swapped, own.means - turned.means, "are far more probable with the sides exchanged"),
    ):
        found = int(mask.sum())
        share = found / count
        if not found:
            continue
        refused = share > _REFUSED_SHARE and count >= _LEAST_SAMPLE
        action = Action.REFUSE if refused else Action.WARN if share > _WARNED_SHARE else Action.NOTE
        message = f"{found:,} of {count:,} sampled pairs {what} ({share:.1%})."
        report.add(Finding(name, action, found, count, message, "keeps them", show(mask, order)))
    share = machine.sum() / max(long.sum(), 1)
    if long.sum() >= _LEAST_SAMPLE and share > _MACHINE_SHARE:
        message = (
            f"{machine.sum():,} of {long.sum():,} sampled targets are word for word what the model itself would write "
            f"({share:.1%}): they are machine translations or text that it was trained on, and teach it nothing."
        )
        found = int(machine.sum())
        examples_of = show(machine, -own.means)
        report.add(
            Finding("machine-translated", Action.WARN, found, int(long.sum()), message, "keeps them", examples_of)
        )
