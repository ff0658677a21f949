"""What a check of parallel text can find, and the report of one check."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

_MAX_TEXT = 80


class Action(StrEnum):
    """What `learn` does about a finding; the values are shown to users."""

    REFUSE = "refuse"
    WARN = "warn"
    NOTE = "note"


class Kind(NamedTuple):
    """A defect of parallel text.

    Attributes:
        name: The name in reports.
        what: What the pairs have, after a number: "12 pairs …".
        fix: What `--bad-pairs fix` does with such a pair.
        refused: Whether `learn` refuses a file in which more than half of the pairs that can be judged have it.
        action: What `learn` does about a smaller share.
    """

    name: str
    what: str
    fix: str
    refused: bool = False
    action: Action = Action.WARN


_LEFT_OUT = "leaves them out"

SWAPPED = Kind("swapped", "have the source in the target language and the target in the source language",
               "exchanges the sides", refused=True)  # fmt: skip
COPIED = Kind("untranslated", "have a target that is a copy of the source", _LEFT_OUT, refused=True)
LANGUAGE = Kind("wrong language", "have a side that is in neither of its languages", _LEFT_OUT, refused=True)
MOJIBAKE = Kind("mojibake", "have characters of a wrong encoding, such as Ã¤ for ä", "repairs the characters, else "
                "leaves the pair out", refused=True)  # fmt: skip
MARKUP = Kind("markup", "have tags or entities on one side only", "keeps them")
LENGTH = Kind("length", "have one side that is much shorter than the other", _LEFT_OUT)
NUMBERS = Kind("numbers", "have different numbers on both sides", "keeps them")
QUOTES = Kind("csv quotes", "have doubled quotes of CSV around a side: read them with --format csv", "keeps them")
HEADER_LIKE = Kind("header", "look like names of columns", "keeps them", action=Action.NOTE)
NO_WORDS = Kind("no words", "have no letters: numbers, dates, signs", _LEFT_OUT, action=Action.NOTE)
DUPLICATE = Kind("duplicate", "are repeated", "keeps the first of each", action=Action.NOTE)
CONTRADICTION = Kind("contradiction", "have a source that has another target elsewhere", "keeps the most frequent "
                     "target of sources of four words or more", action=Action.NOTE)  # fmt: skip
LEAKAGE = Kind("in the dev set", "have a side that is also in the dev or test set", _LEFT_OUT)
SHIFTED = Kind("shifted", "stand in parts where the target belongs to a pair before or after it", _LEFT_OUT)
UNRELATED = Kind("unrelated", "stand in parts where source and target have nothing in common", "keeps them")

PAIR_KINDS = (
    *(SWAPPED, COPIED, LANGUAGE, MOJIBAKE, MARKUP, LENGTH, NUMBERS, QUOTES, HEADER_LIKE, NO_WORDS),
    *(DUPLICATE, CONTRADICTION, LEAKAGE),
)


class Example(NamedTuple):
    """A pair with a defect.

    Attributes:
        place: The file and the line.
        source: The source, shortened.
        target: The target, shortened.
    """

    place: str
    source: str
    target: str


def make_example(origin: str, location: int, source: str, target: str) -> Example:
    """Describe a pair in one line.

    Args:
        origin: The file of the pair.
        location: Its line.
        source: Its source.
        target: Its target.
    """
    return Example(f"{origin}:{location}", _shorten(source), _shorten(target))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


@dataclass(frozen=True)
class Finding:
    """A defect, with the pairs that have it.

    Attributes:
        name: The name of the defect.
        action: What `learn` does.
        count: The number of pairs with it.
        judged: The number of pairs that could be judged.
        message: What was found, in one sentence.
        fix: What `--bad-pairs fix` does.
        examples: A few of the pairs.
    """

    name: str
    action: Action
    count: int
    judged: int
    message: str
    fix: str = ""
    examples: list[Example] = field(default_factory=list)


@dataclass
class CheckReport:
    """The result of a check.

    Attributes:
        corpus: The description of the corpus.
        read: The number of pairs that were read.
        kept: The number of these that are usable.
        complete: Whether the whole corpus was read.
        findings: The findings, those that are refused first.
        sample: Figures of the sample that the model scored; empty without a model.
    """

    corpus: str
    read: int
    kept: int
    complete: bool
    findings: list[Finding]
    sample: dict[str, float | int] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether `learn` refuses this corpus."""
        return any(finding.action is Action.REFUSE for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One of "refused", "usable with warnings" and "good"."""
        if self.refused:
            return "refused"
        return "usable with warnings" if self.warnings else "good"

    @property
    def warnings(self) -> list[Finding]:
        """The findings that are neither refused nor only noted."""
        return [finding for finding in self.findings if finding.action is Action.WARN]

    def refusals(self) -> str:
        """Describe the findings for which the corpus is refused."""
        return " ".join(finding.message for finding in self.findings if finding.action is Action.REFUSE)

    def add(self, finding: Finding) -> None:
        """Add a finding in its place.

        Args:
            finding: The finding.
        """
        order = list(Action)
        self.findings.append(finding)
        self.findings.sort(key=lambda one: order.index(one.action))

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {"verdict": self.verdict, **asdict(self)}
