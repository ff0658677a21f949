"""Translation that keeps every code and placeholder of a text, or reports why the text is not translated.

A translator is any function from a list of texts to the list of their translations; it need not support placeholders.
Each block of a text is translated up to four times, until the translation is valid:

1. `_WithoutFormats`: only if the block has codes of the document that open or close a span, such as bold text. They
   are left out, since a placeholder beside a word spoils the translation of the word, and are put around the
   translation of their content afterwards (`layout.project`);
2. `_Verbatim`: with placeholders unchanged (`%s`, `<b>`), and numbered ones (`{1}`) for codes of the document, long
   placeholders and repeated ones;
3. `_WithPlaceholders`: with a numbered placeholder for each code and placeholder;
4. `_WithoutMarks`: without any of them; they are inserted by their position afterwards.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from ibidem.text.inline.accelerators import put_accelerator
from ibidem.text.inline.layout import Block, Stripped, has_letters, project, split, strip_marks
from ibidem.text.inline.placeholders import (
    ICU,
    MARK,
    Marked,
    Pieces,
    Role,
    character_of,
    find_marks,
    mark,
    number_of,
    plain_text,
)
from ibidem.text.inline.validation import compare, count_placeholders, find_problem

_NUMBERED = re.compile(r"\{[0-9]+\}")
_MARK_SPACE = re.compile(f"({MARK.pattern}) ")
_SPACE_MARK = re.compile(f" ({MARK.pattern})")
_WIDE_SPACE = re.compile(r"\s{2}")
_MAX_VERBATIM = 100
_MIN_COPIED = 3
# Entities of characters without a meaning in markup.
_ENTITY = re.compile(
    r"&(?:nbsp|shy|hellip|[lr][sd]quo|[mn]dash|bdquo|sbquo|[A-Za-z](?:uml|acute|grave|circ)|szlig|#[0-9]{2,6});"
)

Translate: TypeAlias = Callable[[list[str]], Sequence[str]]
"""Translates single lines, in order."""


@dataclass(frozen=True, slots=True)
class Request:
    """A text to translate.

    Attributes:
        pieces: The text and its codes.
        printf: Whether the text is a format string, in which every `%` begins a placeholder.
        keep_lines: Whether line breaks count; if not, white space is collapsed, as in indented XML.
        accelerators: Whether the text may be a label of a user interface with an accelerator.
    """

    pieces: Pieces
    printf: bool = False
    keep_lines: bool = True
    accelerators: bool = True


@dataclass(frozen=True, slots=True)
class Untranslated:
    """A text without a valid translation.

    Attributes:
        reason: The problem of the first attempt, in words.
    """

    reason: str


def translate_pieces(
    requests: Sequence[Request],
    translate: Translate,
    confidences: Mapping[str, float | None] | None = None,
    found: list[float | None] | None = None,
) -> list[Pieces | Untranslated]:
    """Translate texts with their codes, placeholders, accelerators, line breaks and outer white space.

    Args:
        requests: The texts.
        translate: The translator. It is called at most four times, with all blocks of all texts at once.
        confidences: The confidence of each line that was translated, which `translate` fills.
        found: A list that receives the confidence of each text: the product of those of its lines, None where it is
            unknown.

    Returns:
        For each text its translation, or the reason why there is none.

    Examples:
        >>> translate_pieces([Request(("Datei %s fehlt",))], lambda texts: ["File %s is missing"])
        [('File %s is missing',)]
    """
    jobs = [_start(request) for request in requests]
    parts = [part for job in jobs if isinstance(job, _Job) for part in job.parts if isinstance(part, _Part)]
    pending = [(part, _attempts(part)) for part in parts]
    outputs: dict[str, str] = {}
    while trials := [(part, trial, later) for part, later in pending if (trial := next(later, None)) is not None]:
        inputs = list(dict.fromkeys(text for _, trial, _ in trials for text in trial.inputs if text not in outputs))
        outputs |= dict(zip(inputs, translate(inputs), strict=True)) if inputs else {}
        for part, trial, _ in trials:
            part.accept(trial.read(outputs), [trial.inputs[0], *(outputs[text] for text in trial.inputs[1:])])
        pending = [(part, later) for part, _, later in trials if part.translation is None]
    for part in parts:
        part.conclude()
    if found is not None:
        found += [_confidence_of(job, confidences or {}) for job in jobs]
    return [_finish(job) if isinstance(job, _Job) else job for job in jobs]


@dataclass(slots=True)
class _Part:
    """A block, its first valid translation, and the problem of its first attempt.

    `doubtful` is a valid translation, and its line, that is used if no later attempt gives a better one.
    """

    marked: Marked
    block: Block
    printf: bool
    translation: str | None = None
    problem: str | None = None
    line: str = ""
    doubtful: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        return self.block.text

    def accept(self, result: str | Untranslated, lines: Sequence[str]) -> None:
        """Keep a translation if it is valid, or else its problem.

        Args:
            result: The translation.
            lines: The line that it was made of, and the translations of the texts between tags, if they are known.
        """
        if isinstance(result, Untranslated):
            self.problem = self.problem or result.reason
            return
        translation = _remove_added_spaces(self.marked, self.text, _replace_added_entities(self.marked, result))
        problem = find_problem(self.marked, self.text, translation, printf=self.printf)
        if problem is None and _copies_inside_tags(self.marked, self.text, translation):
            self.doubtful = self.doubtful or (translation, lines[0])
        elif problem is None and (self.doubtful is None or self._has_inside_tags(translation, lines[1:])):
            self.translation, self.line = translation, lines[0]
        self.problem = self.problem or problem

    def _has_inside_tags(self, translation: str, inner: Sequence[str]) -> bool:
        """Return whether tags that were inserted again are around the translations of their contents.

        Names between tags are copies too, and rightly so; their tags must not be placed by their position.
        """
        known = {text.strip().casefold() for text in inner}
        return not known or all(
            _between(translation, number, found.partner).casefold() in known
            for number in find_marks(self.text)
            if (found := self.marked.marks[number]).role == Role.OPEN and found.partner is not None
        )

    def conclude(self) -> None:
        """Use the doubtful translation if there is no other."""
        if self.translation is None and self.doubtful is not None:
            self.translation, self.line = self.doubtful


@dataclass(slots=True)
class _Job:
    request: Request
    marked: Marked
    parts: list[str | _Part] = field(default_factory=list)


def _start(request: Request) -> _Job | Untranslated:
    if ICU.search(plain_text(request.pieces)):
        return Untranslated("an ICU message with several texts in one (plural, select) is left to a person")
    try:
        marked = mark(request.pieces, printf=request.printf, accelerators=request.accelerators)
    except ValueError as error:
        return Untranslated(str(error))
    parts = split(marked, keep_lines=request.keep_lines)
    return _Job(
        request, marked, [_Part(marked, part, request.printf) if isinstance(part, Block) else part for part in parts]
    )


def _confidence_of(job: _Job | Untranslated, confidences: Mapping[str, float | None]) -> float | None:
    """Return the product of the confidences of a text's lines; None if one is unknown or there is none."""
    parts = [part for part in job.parts if isinstance(part, _Part)] if isinstance(job, _Job) else []
    known = [confidences.get(part.line) for part in parts]
    numbers = [one for one in known if one is not None]
    return math.prod(numbers) if numbers and len(numbers) == len(known) else None


def _finish(job: _Job) -> Pieces | Untranslated:
    texts: list[str] = []
    for part in job.parts:
        if isinstance(part, str):
            texts.append(part)
        elif part.translation is None:
            return Untranslated(part.problem or "the translator returned no translation")
        else:
            texts.append(part.block.wrap(part.translation, job.marked.marks))
    text = "".join(texts)
    pieces = job.marked.unmark(text)
    printf = job.request.printf
    if len(job.parts) > 1:
        # The ends of two valid parts could form a new placeholder.
        source = job.marked.unmark(job.marked.text)
        if problem := compare(source, pieces, printf=printf):
            return Untranslated(problem)
    if (accelerator := job.marked.accelerator) is None:
        return pieces
    if text.count(accelerator.marker) > job.marked.text.count(accelerator.marker):
        return Untranslated(f"a {accelerator.marker} was added beside the one that marks the accelerator")
    accelerated = job.marked.unmark(put_accelerator(text, accelerator))
    if count_placeholders(accelerated, printf=printf) != count_placeholders(pieces, printf=printf):
        return Untranslated(f"there is no place for the accelerator {accelerator.marker}{accelerator.letter}")
    return accelerated


class _Shown:
    """An attempt with one input, in which each mark is shown as some text."""

    def __init__(self, part: _Part, shown: Mapping[int, str]) -> None:
        self.shown = shown
        self.text = part.text
        self.inputs = [MARK.sub(lambda match: shown[number_of(match[0])], part.text)]

    def read(self, outputs: Mapping[str, str]) -> str | Untranslated:
        return _restore_marks(_tidy_spaces(outputs[self.inputs[0]], self.text), self.shown)


class _Verbatim(_Shown):
    """Shows placeholders unchanged where possible, and numbered ones for the rest."""

    def __init__(self, part: _Part) -> None:
        marks = part.marked.marks
        numbers = find_marks(part.text)
        repeats = Counter(marks[number].text for number in numbers)
        shown = _number_placeholders(part)
        if len(numbers) <= _MAX_VERBATIM:
            unique = (n for n in numbers if marks[n].can_be_shown and repeats[marks[n].text] == 1)
            shown |= {number: marks[number].text for number in unique}
        super().__init__(part, shown)


class _WithPlaceholders(_Shown):
    """Shows a numbered placeholder for each mark; there is no input if the first attempt did the same."""

    def __init__(self, part: _Part) -> None:
        super().__init__(part, _number_placeholders(part))
        if self.shown == _Verbatim(part).shown:
            self.inputs = []


class _WithoutMarks:
    """Translates the text alone, and inserts the marks by their position."""

    def __init__(self, part: _Part) -> None:
        self.text = part.text
        self.marks = part.marked.marks
        self.shown: Mapping[int, str] = {}
        self.stripped: Stripped = strip_marks(part.text, self.marks, self.select(part))
        self.inputs: list[str] = []
        if self.stripped.places:
            inner = [text for text in self.stripped.inner.values() if has_letters(text)]
            self.inputs = [self._show(text) for text in (self.stripped.text, *inner)]

    def select(self, part: _Part) -> Container[int]:
        """Return the numbers of the marks that are left out."""
        return find_marks(part.text)

    def read(self, outputs: Mapping[str, str]) -> str | Untranslated:
        shown = {number: self.shown[number] for number in find_marks(self.stripped.text)}
        whole = _restore_marks(_join_words(outputs[self.inputs[0]]), shown)
        if isinstance(whole, Untranslated):
            return whole
        if whole == self.stripped.text:
            return self.text
        inner = {number: self.translate_inner(number, outputs) for number in self.stripped.inner}
        return project(self.stripped, self.marks, whole, inner)

    def _show(self, text: str) -> str:
        return MARK.sub(lambda match: self.shown[number_of(match[0])], text)

    def translate_inner(self, number: int, outputs: Mapping[str, str]) -> list[str]:
        """Return the translations of the text between two tags."""
        text = self.stripped.inner[number]
        if not has_letters(text):
            return [text]
        shown = {number: self.shown[number] for number in find_marks(text)}
        translation = _restore_marks(_join_words(outputs[self._show(text)]), shown)
        return [] if isinstance(translation, Untranslated) else [translation]


class _WithoutFormats(_WithoutMarks):
    """Translates the text without codes that open or close a span; shows the other marks as `_Verbatim` does.

    The text is translated once more with the codes as placeholders between spaces. Only the words between them are
    used, to find the translation of the content: alone, it may be translated in another way than in its sentence.
    """

    def __init__(self, part: _Part) -> None:
        super().__init__(part)
        spaced = {n: f" {text} " if part.marked.marks[n].is_tag else text for n, text in self.shown.items()}
        self.with_codes = _join_words(MARK.sub(lambda match: spaced[number_of(match[0])], part.text))
        if len(self.inputs) > 1:
            self.inputs.append(self.with_codes)

    def select(self, part: _Part) -> Container[int]:
        self.shown = _Verbatim(part).shown
        return _find_formats(part)

    def translate_inner(self, number: int, outputs: Mapping[str, str]) -> list[str]:
        found = super().translate_inner(number, outputs)
        translation = outputs.get(self.with_codes, "")
        partner = self.marks[number].partner
        _, _, later = translation.partition(self.shown[number])
        between, closing, _ = later.partition(self.shown[partner] if partner is not None else "\0")
        if not closing:
            return found
        for other, shown in self.shown.items():
            between = between.replace(shown, "" if self.marks[other].is_tag else character_of(other))
        return [_join_words(between), *found]


def _attempts(part: _Part) -> Iterator[_Shown | _WithoutMarks]:
    """Yield the attempts at a block in their order."""
    attempts: list[Callable[[_Part], _Shown | _WithoutMarks]] = [_Verbatim, _WithPlaceholders, _WithoutMarks]
    if _find_formats(part):
        attempts.insert(0, _WithoutFormats)
    for attempt in attempts:
        trial = attempt(part)
        if trial.inputs:
            yield trial


def _find_formats(part: _Part) -> set[int]:
    """Return the numbers of the codes of the document that open or close a span."""
    marks = part.marked.marks
    return {n for n in find_marks(part.text) if marks[n].code is not None and marks[n].is_tag}


def _number_placeholders(part: _Part) -> dict[int, str]:
    """Return `{1}`, `{2}` and so on for the marks of a block, without those that the text itself contains."""
    taken = {found.text for found in part.marked.marks}
    free = (name for number in count(1) if (name := f"{{{number}}}") not in taken)
    return dict(zip(find_marks(part.text), free, strict=False))


def _copies_inside_tags(marked: Marked, source: str, translation: str) -> bool:
    """Return whether the words between two tags of the text were not translated, though words around them were.

    A model may copy `<b>hier</b>` as a whole.
    """
    for number in find_marks(source):
        found = marked.marks[number]
        if found.code is None and found.role == Role.OPEN and found.partner is not None:
            inside = _between(source, number, found.partner)
            if sum(map(str.isalpha, inside)) >= _MIN_COPIED and inside == _between(translation, number, found.partner):
                return source != translation
    return False


def _between(text: str, first: int, last: int) -> str:
    return text.partition(character_of(first))[2].partition(character_of(last))[0].strip()


def _join_words(text: str) -> str:
    return " ".join(text.split())


def _tidy_spaces(translation: str, source: str) -> str:
    """Join the words of a translation by single spaces, unless the source has wider spaces between its sentences."""
    return translation.strip() if _WIDE_SPACE.search(source) else _join_words(translation)


def _reject(translation: str) -> Untranslated | None:
    if not translation:
        return Untranslated("the translation is empty")
    return Untranslated("characters for private use were added") if MARK.search(translation) else None


def _restore_marks(translation: str, shown: Mapping[int, str]) -> str | Untranslated:
    """Replace what the marks were shown as by the marks; each of them must occur exactly once."""
    if loss := _reject(translation):
        return loss
    if not shown:
        return translation
    numbers = {text: number for number, text in shown.items()}
    verbatim = sorted((text for text in numbers if not _NUMBERED.fullmatch(text)), key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, verbatim), _NUMBERED.pattern]))
    found = Counter(pattern.findall(translation))
    wrong = next((text for text in numbers if found[text] != 1), None)
    if wrong is not None:
        return Untranslated(f"{wrong} is missing" if found[wrong] == 0 else f"{wrong} occurs {found[wrong]} times")
    return pattern.sub(lambda match: character_of(numbers[match[0]]) if match[0] in numbers else match[0], translation)


def _replace_added_entities(marked: Marked, translation: str) -> str:
    """Replace entities by characters if the source has none; a memory of another format may contain them."""
    if "&" not in translation or any(_ENTITY.fullmatch(found.text) for found in marked.marks):
        return translation
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), translation)


def _remove_added_spaces(marked: Marked, source: str, translation: str) -> str:
    """Remove the space inside a pair of tags where the source has none."""
    inside = set(find_marks(source))
    paired = [number for number in inside if marked.marks[number].partner in inside]
    roles = {character_of(number): marked.marks[number].role for number in paired}
    spaced_after, spaced_before = set(_MARK_SPACE.findall(source)), set(_SPACE_MARK.findall(source))

    def join(match: re.Match[str], role: Role, spaced: set[str]) -> str:
        character = match[1]
        return character if roles.get(character) == role and character not in spaced else match[0]

    translation = _MARK_SPACE.sub(lambda match: join(match, Role.OPEN, spaced_after), translation)
    return _SPACE_MARK.sub(lambda match: join(match, Role.CLOSE, spaced_before), translation)
