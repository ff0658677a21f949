"""The check of a corpus by its texts alone: one pass in bounded memory, and the filter that leaves bad pairs out."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ibidem.check.alignment import BLOCK_PAIRS, Alignment, Part, shifted_pairs
from ibidem.check.findings import (
    CONTRADICTION,
    COPIED,
    DUPLICATE,
    LANGUAGE,
    LEAKAGE,
    LENGTH,
    MOJIBAKE,
    NO_WORDS,
    PAIR_KINDS,
    SHIFTED,
    SWAPPED,
    UNRELATED,
    Action,
    CheckReport,
    Example,
    Finding,
    Kind,
    make_example,
)
from ibidem.check.language import knows_language
from ibidem.check.pair_rules import PairRules, has_mojibake, repair
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ibidem.text import Corpus, Pair, PairFilter

_PROGRESS_PAIRS = 1_000
_CONTEXT_WORDS = 4
# Of a file that is refused, this share of the pairs that can be judged has the defect, and at least so many.
_REFUSED_SHARE = 0.5
_LEAST_JUDGED = 8
# Real corpora have a few such pairs, which do not harm.
_WARNED_SHARE = 0.005


@dataclass(frozen=True)
class CheckSettings:
    """Limits of a check.

    Attributes:
        dense_pairs: Pairs from the beginning that are all judged; after them, one of eight blocks is.
        seconds: The time after which reading stops; what was read until then is reported.
        memory_pairs: Pairs that are remembered to find repetitions; later ones are not compared.
        examples: Examples of each finding.
        sample: Pairs that are drawn for the model.
        seed: The seed of the draw.
    """

    dense_pairs: int = 50_000
    seconds: float = 60.0
    memory_pairs: int = 1_000_000
    examples: int = 3
    sample: int = 0
    seed: int = 0


_SPARSE = 8


class Sampled(NamedTuple):
    """A pair that was drawn for the model.

    Attributes:
        number: Its number in the corpus, from 0.
        pair: The pair.
    """

    number: int
    pair: Pair


@dataclass
class _Repetitions:
    """Hashes of sources and targets, to find pairs that are repeated and sources with several targets."""

    limit: int
    pairs: set[bytes] = field(default_factory=set)
    targets: dict[bytes, bytes] = field(default_factory=dict)
    contradicted: dict[bytes, Counter[bytes]] = field(default_factory=dict)

    def find(self, pair: Pair) -> list[Kind]:
        """Return whether a pair is repeated or contradicts an earlier one."""
        source, target = _digest(pair.source), _digest(pair.target)
        both = source + target
        if source in self.contradicted:
            self.contradicted[source][target] += 1
        if both in self.pairs:
            return [DUPLICATE]
        if len(self.pairs) >= self.limit:
            return []
        self.pairs.add(both)
        first = self.targets.setdefault(source, target)
        if first == target:
            return []
        if source not in self.contradicted:
            self.contradicted[source] = Counter([first, target])
        return [CONTRADICTION]

    def rejected(self) -> set[bytes]:
        """Return the pairs whose source has a more frequent target; the first of equally frequent ones is kept."""
        return {
            source + target
            for source, targets in self.contradicted.items()
            for target in targets
            if target != targets.most_common(1)[0][0]
        }


class TextCheck:
    """Judges the pairs of a corpus one by one, then reports.

    Args:
        languages: The languages of sources and targets, two-letter codes.
        settings: The limits.
        held_out: Pairs of dev and test sets, which must not be in the corpus.

    Examples:
        >>> from ibidem.text import Pair
        >>> check = TextCheck(("de", "en"))
        >>> for number in range(20):
        ...     check.add(Pair(f"This is file {number}.", f"Das ist die Datei {number}.", "a.tsv", number + 1))
        >>> [(finding.name, finding.count, finding.action.value) for finding in check.findings()]
        [('swapped', 20, 'refuse')]
    """

    def __init__(
        self,
        languages: tuple[str, str],
        settings: CheckSettings | None = None,
        held_out: Iterable[Pair] = (),
    ) -> None:
        self.settings = settings or CheckSettings()
        self._rules = PairRules(*languages)
        self._same_script = all(map(knows_language, languages))
        self._alignment = Alignment()
        self._held_out = {_digest(_normalize(text)) for pair in held_out for text in (pair.source, pair.target)}
        self._repetitions = _Repetitions(self.settings.memory_pairs)
        self._counts: Counter[Kind] = Counter()
        self._judged: Counter[Kind] = Counter()
        self._examples: dict[Kind, list[Example]] = {}
        self._places: list[tuple[str, int]] = []
        self._random = random.Random(self.settings.seed)
        self.sample: list[Sampled] = []
        self.pairs = 0

    def add(self, pair: Pair) -> None:
        """Judge the next pair of the corpus.

        Args:
            pair: The pair.
        """
        number = self.pairs
        self.pairs += 1
        self._draw(number, pair)
        for kind in self._repetitions.find(pair):
            self._count(kind, pair)
        if self._held_out and self._leaks(pair):
            self._count(LEAKAGE, pair)
        block = number // BLOCK_PAIRS
        if number >= self.settings.dense_pairs and block % _SPARSE:
            return
        if number % BLOCK_PAIRS == 0:
            self._places.append((pair.origin, pair.location))
        if number >= self.settings.dense_pairs and number % BLOCK_PAIRS == 0:
            self._alignment.skip()
        self._alignment.add(pair)
        judgement = self._rules.judge(pair)
        self._judged.update(judgement.judged)
        for kind in judgement.kinds:
            self._count(kind, pair)

    def findings(self) -> list[Finding]:
        """Return what was found in the pairs so far, what is refused first."""
        found = [self._describe(kind) for kind in PAIR_KINDS if self._counts[kind]]
        found += self._describe_alignment()
        order = list(Action)
        return sorted(found, key=lambda finding: order.index(finding.action))

    def new_filter(self) -> Callable[[], PairFilter]:
        """Return what makes a filter of the corpus that repairs pairs or leaves them out; see `Corpus.new_filter`."""
        # Only pairs that were judged one after the other have the numbers of the corpus.
        dense = self._alignment.pairs == self.pairs
        shifted = set(shifted_pairs(self._alignment.find_parts())) if dense else set()
        rejected = self._repetitions.rejected()
        exchanged = self._is_certain(SWAPPED)

        def make() -> PairFilter:
            return _Filter(self._rules, self._leaks, shifted, rejected, exchanged, self.settings.memory_pairs)

        return make

    def _leaks(self, pair: Pair) -> bool:
        return any(_digest(_normalize(text)) in self._held_out for text in (pair.source, pair.target))

    def _draw(self, number: int, pair: Pair) -> None:
        """Keep a random sample of fixed size (reservoir)."""
        if len(self.sample) < self.settings.sample:
            self.sample.append(Sampled(number, pair))
        elif self.settings.sample and (place := self._random.randrange(number + 1)) < self.settings.sample:
            self.sample[place] = Sampled(number, pair)

    def _count(self, kind: Kind, pair: Pair) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < self.settings.examples:
            examples.append(make_example(pair.origin, pair.location, pair.source, pair.target))

    def _is_certain(self, kind: Kind) -> bool:
        """Return whether a file with so many pairs of a kind is refused."""
        judged = self._judged[kind]
        return kind.refused and judged >= _LEAST_JUDGED and self._counts[kind] > _REFUSED_SHARE * judged

    def _describe(self, kind: Kind) -> Finding:
        count = self._counts[kind]
        judged = self._judged[kind] if kind.refused else self.pairs
        seen = self._alignment.pairs
        certain = self._is_certain(kind)
        if kind not in (DUPLICATE, CONTRADICTION, LEAKAGE) and not kind.refused:
            judged = seen
        of = f" of {judged:,} that can be judged" if kind.refused else f" of {judged:,}"
        message = f"{count:,}{of} {kind.what} ({count / max(judged, 1):.1%})."
        if certain:
            message += " " + _REMEDIES.get(kind.name, "Check that the right files are given.")
        rare = kind is not LEAKAGE and count < _WARNED_SHARE * judged
        action = Action.REFUSE if certain else Action.NOTE if rare else kind.action
        return Finding(kind.name, action, count, judged, message, kind.fix, self._examples.get(kind, []))

    def _describe_alignment(self) -> Iterator[Finding]:
        parts = self._alignment.find_parts()
        shifted = [part for part in parts if part.offset is not None]
        unrelated = [part for part in parts if part.offset is None] if self._same_script else []
        if shifted:
            count = sum(part.last - part.first + 1 for part in shifted)
            first = shifted[0]
            assert first.offset is not None
            side = "above" if first.offset < 0 else "below"
            message = (
                f"{count:,} of {self._alignment.pairs:,} {SHIFTED.what}: from about {self._place(first)} on, the "
                f"target of a source is {abs(first.offset)} {side} it. A line is missing or was added "
                "on one side: align the files again."
            )
            yield Finding(SHIFTED.name, Action.REFUSE, count, self._alignment.pairs, message, SHIFTED.fix)
        if unrelated:
            count = sum(part.last - part.first + 1 for part in unrelated)
            share = count / self._alignment.pairs
            action = Action.REFUSE if share > _REFUSED_SHARE else Action.WARN
            message = (
                f"{count:,} of {self._alignment.pairs:,} {UNRELATED.what}, from about {self._place(unrelated[0])} on: "
                "check that both sides have the same order."
            )
            yield Finding(UNRELATED.name, action, count, self._alignment.pairs, message, UNRELATED.fix)

    def _place(self, part: Part) -> str:
        origin, location = self._places[min(part.first // BLOCK_PAIRS, len(self._places) - 1)]
        return f"{origin}:{location + part.first % BLOCK_PAIRS}"


_REMEDIES = {
    SWAPPED.name: "Give the two files in the other order, or name the columns in the first row.",
    COPIED.name: "Check that the files are two different ones, and that the targets are translated.",
    LANGUAGE.name: "Check the files, or choose the languages with a model for them.",
    MOJIBAKE.name: "The file was converted with the wrong encoding: export it again as UTF-8.",
}
_LEFT_OUT = (COPIED, LANGUAGE, LENGTH, NO_WORDS)


class _Filter:
    """Repairs pairs, or gives the reason to leave them out."""

    def __init__(
        self,
        rules: PairRules,
        leaks: Callable[[Pair], bool],
        shifted: set[int],
        rejected: set[bytes],
        exchanged: bool,
        memory_pairs: int,
    ) -> None:
        self._rules = rules
        self._leaks = leaks
        self._shifted = shifted
        self._rejected = rejected
        self._exchanged = exchanged
        self._seen: set[bytes] = set()
        self._memory_pairs = memory_pairs
        self._number = -1

    def __call__(self, pair: Pair) -> Pair | str:
        """Return the pair, repaired, or the reason to leave it out."""
        self._number += 1
        if self._number in self._shifted:
            return SHIFTED.name
        both = _digest(pair.source) + _digest(pair.target)
        if both in self._rejected and len(pair.source.split()) >= _CONTEXT_WORDS:
            return CONTRADICTION.name
        if self._leaks(pair):
            return LEAKAGE.name
        pair = repair(pair)
        if has_mojibake(pair):
            return MOJIBAKE.name
        judgement = self._rules.judge(pair)
        # In a file whose sides are exchanged, so are those of the pairs without evidence.
        if SWAPPED in judgement.kinds or (self._exchanged and SWAPPED not in judgement.judged):
            pair = replace(pair, source=pair.target, target=pair.source)
        elif reason := next((kind.name for kind in judgement.kinds if kind in _LEFT_OUT), None):
            return reason
        both = _digest(pair.source) + _digest(pair.target)
        if both in self._seen:
            return DUPLICATE.name
        if len(self._seen) < self._memory_pairs:
            self._seen.add(both)
        return pair


def check_texts(
    corpus: Corpus,
    *,
    settings: CheckSettings | None = None,
    held_out: Iterable[Pair] = (),
    progress: Progress = silent,
) -> tuple[CheckReport, TextCheck]:
    """Check a corpus by its texts, in one pass.

    Args:
        corpus: The parallel text; it is read once.
        settings: The limits of the check.
        held_out: Pairs of dev and test sets.
        progress: Receives the number of pairs that are judged.

    Returns:
        The report, and the check, which can make a filter of the corpus and has the sample for the model.

    Raises:
        TextError: The corpus cannot be read.
    """
    settings = settings or CheckSettings()
    check = TextCheck((corpus.languages.source, corpus.languages.target), settings, held_out)
    complete = True
    end = monotonic() + settings.seconds
    for pair in corpus:
        check.add(pair)
        if check.pairs % _PROGRESS_PAIRS == 0:
            progress("Checking", corpus.fraction(), check.pairs, "pairs")
            if monotonic() > end:
                complete = False
                break
    counts = corpus.counts
    report = CheckReport(corpus.description, counts.read, counts.kept, complete, check.findings())
    for reason, count in counts.dropped.items():
        message = f"{count:,} of {counts.read:,} units give no pair: {reason}."
        report.add(Finding(reason, Action.NOTE, count, counts.read, message, "leaves them out, as always"))
    return report, check


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _normalize(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold())) or text
