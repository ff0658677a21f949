"""Translating texts with codes and placeholders so that every one of them comes back, or the text is reported.

A translator is any function from a list of texts to the list of their translations; it need not know what a
placeholder is. For each text it is asked up to three times, until nothing is missing:

1. with placeholders as they stand (`%s`, `<b>`), and a stand-in `{1}` for codes of the document, long ones and doubles;
2. with a stand-in for each of them;
3. without them; then they are put in by their place (`projection`).

What is still not sound is a `Loss`, with what went wrong the first time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from ibidem.text.inline.accelerators import put_accelerator
from ibidem.text.inline.checking import compare, count_placeholders, find_problem
from ibidem.text.inline.code import Pieces, Role, plain_text
from ibidem.text.inline.layout import Block, cut
from ibidem.text.inline.marking import MARK, Marked, character_of, find_marks, mark, number_of
from ibidem.text.inline.placeholders import ICU
from ibidem.text.inline.projection import Stripped, project, strip_marks

_STAND_IN = re.compile(r"\{[0-9]+\}")
_MARK_SPACE = re.compile(f"({MARK.pattern}) ")
_SPACE_MARK = re.compile(f" ({MARK.pattern})")
_MOST_SHOWN = 100

Translate: TypeAlias = Callable[[list[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A text to translate; `printf` says that it is a format string, `keep_lines` that its line breaks count."""

    pieces: Pieces
    printf: bool = False
    keep_lines: bool = True


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a text has no translation."""

    reason: str


def translate_pieces(requests: Sequence[Request], translate: Translate) -> list[Pieces | Loss]:
    """Translate each text with all its codes, placeholders, accelerator, line breaks and outer white space."""
    jobs = [_start(request) for request in requests]
    blocks = [block for job in jobs if isinstance(job, _Job) for block in job.blocks]
    for attempt in (_AsItStands, _WithStandIns, _WithoutCodes):
        tries = [(block, attempt(block)) for block in blocks if block.answer is None]
        tries = [(block, trial) for block, trial in tries if trial.questions]
        questions = list(dict.fromkeys(question for _, trial in tries for question in trial.questions))
        answers = dict(zip(questions, translate(questions), strict=True)) if questions else {}
        for block, trial in tries:
            block.take(trial.read(answers))
    return [_finish(job) if isinstance(job, _Job) else job for job in jobs]


@dataclass(slots=True)
class _Part:
    """A block while it is translated: its first problem is kept, and its answer once one is sound."""

    marked: Marked
    block: Block
    printf: bool
    answer: str | None = None
    problem: str | None = None

    @property
    def text(self) -> str:
        return self.block.text

    def take(self, answer: str | Loss) -> None:
        if isinstance(answer, str):
            answer = _tidy(self.marked, self.text, answer)
            problem = find_problem(self.marked, self.text, answer, printf=self.printf)
        else:
            problem = answer.reason
        if problem is None and isinstance(answer, str):
            self.answer = answer
        self.problem = self.problem or problem


@dataclass(slots=True)
class _Job:
    request: Request
    marked: Marked
    parts: list[str | _Part]
    blocks: list[_Part] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = [part for part in self.parts if isinstance(part, _Part)]


def _start(request: Request) -> _Job | Loss:
    if ICU.search(plain_text(request.pieces)):
        return Loss("an ICU message with several texts in one (plural, select) is left to a person")
    try:
        marked = mark(request.pieces, printf=request.printf)
    except ValueError as error:
        return Loss(str(error))
    parts = cut(marked, keep_lines=request.keep_lines)
    return _Job(
        request, marked, [_Part(marked, part, request.printf) if isinstance(part, Block) else part for part in parts]
    )


def _finish(job: _Job) -> Pieces | Loss:
    for block in job.blocks:
        if block.answer is None:
            return Loss(block.problem or "no translation came back")
    text = "".join(
        part.block.arrange(part.answer or "", job.marked.marks) if isinstance(part, _Part) else part
        for part in job.parts
    )
    pieces = job.marked.unmark(text)
    if len(job.parts) > 1:
        # The text as a whole is compared once more: two sound parts could have joined to something else.
        source = job.marked.unmark(job.marked.text)
        if problem := compare(source, pieces, printf=job.request.printf):
            return Loss(problem)
    if (accelerator := job.marked.accelerator) is None:
        return pieces
    if text.count(accelerator.marker) > job.marked.text.count(accelerator.marker):
        return Loss(f"a {accelerator.marker} came up beside the one that marks the accelerator")
    accelerated = job.marked.unmark(put_accelerator(text, accelerator))
    if count_placeholders(accelerated, printf=job.request.printf) != count_placeholders(
        pieces, printf=job.request.printf
    ):
        return Loss(f"there is no place for the accelerator {accelerator.marker}{accelerator.letter}")
    return accelerated


class _Shown:
    """One question in which each mark is shown as some text."""

    def __init__(self, part: _Part, shown: Mapping[int, str]) -> None:
        self.part = part
        self.shown = shown
        self.questions = [_fill(part.text, shown)]

    def read(self, answers: Mapping[str, str]) -> str | Loss:
        return _find(_normalise(answers[self.questions[0]]), self.shown)


class _AsItStands(_Shown):
    """Placeholders as they stand, stand-ins for the rest."""

    def __init__(self, part: _Part) -> None:
        marks = part.marked.marks
        numbers = find_marks(part.text)
        doubled = Counter(marks[number].text for number in numbers)
        shown = _stand_ins(part)
        if len(numbers) <= _MOST_SHOWN:
            alone = (n for n in numbers if marks[n].can_be_shown and doubled[marks[n].text] == 1)
            shown |= {number: marks[number].text for number in alone}
        super().__init__(part, shown)


class _WithStandIns(_Shown):
    """A stand-in for each mark, unless that is what was asked already."""

    def __init__(self, part: _Part) -> None:
        super().__init__(part, _stand_ins(part))
        if self.shown == _AsItStands(part).shown:
            self.questions = []


class _WithoutCodes:
    """The text alone, and the marks by their place."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.stripped: Stripped = strip_marks(part.text, part.marked.marks)
        self.questions = [self.stripped.text, *self.stripped.inner.values()] if self.stripped.places else []

    def read(self, answers: Mapping[str, str]) -> str | Loss:
        whole = _normalise(answers[self.stripped.text])
        if not whole:
            return Loss("the translation came back empty")
        if MARK.search(whole):
            return Loss("characters for private use came up")
        inner = {number: _normalise(answers[text]) for number, text in self.stripped.inner.items()}
        return project(self.stripped, self.part.marked.marks, whole, inner)


def _stand_ins(part: _Part) -> dict[int, str]:
    """`{1}`, `{2}` and so on for the marks of a block, but for what its own placeholders look like."""
    taken = {found.text for found in part.marked.marks}
    free = (name for number in count(1) if (name := f"{{{number}}}") not in taken)
    return dict(zip(find_marks(part.text), free, strict=False))


def _fill(text: str, shown: Mapping[int, str]) -> str:
    return MARK.sub(lambda match: shown[number_of(match[0])], text)


def _normalise(answer: str) -> str:
    return " ".join(answer.split())


def _find(answer: str, shown: Mapping[int, str]) -> str | Loss:
    """The answer with marks in place of what they were shown as, each of which must be there exactly once."""
    if not answer:
        return Loss("the translation came back empty")
    if MARK.search(answer):
        return Loss("characters for private use came up")
    if not shown:
        return answer
    numbers = {text: number for number, text in shown.items()}
    as_they_stand = sorted((text for text in numbers if not _STAND_IN.fullmatch(text)), key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, as_they_stand), _STAND_IN.pattern]))
    found = Counter(pattern.findall(answer))
    wrong = [text for text in numbers if found[text] != 1]
    if wrong:
        what = "got lost" if found[wrong[0]] == 0 else f"came back {found[wrong[0]]} times"
        return Loss(f"{wrong[0]} {what}")
    return pattern.sub(lambda match: character_of(numbers[match[0]]) if match[0] in numbers else match[0], answer)


def _tidy(marked: Marked, source: str, answer: str) -> str:
    """Remove the space that a translator put inside a pair of tags where the source has none."""
    inside = set(find_marks(source))
    paired = [number for number in inside if marked.marks[number].partner in inside]
    roles = {character_of(number): marked.marks[number].role for number in paired}
    spaced_after, spaced_before = set(_MARK_SPACE.findall(source)), set(_SPACE_MARK.findall(source))

    def join(match: re.Match[str], role: Role, spaced: set[str]) -> str:
        character = match[1]
        return character if roles.get(character) == role and character not in spaced else match[0]

    answer = _MARK_SPACE.sub(lambda match: join(match, Role.OPEN, spaced_after), answer)
    return _SPACE_MARK.sub(lambda match: join(match, Role.CLOSE, spaced_before), answer)
