"""A text as lines to translate and all that stays around them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_BREAK = re.compile(r"(\r\n|\n|\r)")


class Layout(NamedTuple):
    """The lines of a text that are not blank, without their white space, and the parts between them.

    `gaps` has one more than `lines`: gap, line, gap, line, gap is the text.
    """

    lines: tuple[str, ...]
    gaps: tuple[str, ...]

    def fill(self, translations: Sequence[str]) -> tuple[str, list[int]]:
        """The text with these in the place of its lines, and where each of them begins."""
        parts, starts, place = [self.gaps[0]], [], len(self.gaps[0])
        for translation, gap in zip(translations, self.gaps[1:], strict=True):
            starts.append(place)
            parts += [translation, gap]
            place += len(translation) + len(gap)
        return "".join(parts), starts


def lay_out(text: str) -> Layout:
    """Take a text apart; only LF, CRLF and CR separate lines."""
    lines: list[str] = []
    gaps = [""]
    for part in _BREAK.split(text):
        line = part.strip()
        if not line:
            gaps[-1] += part
            continue
        start = part.index(line)
        gaps[-1] += part[:start]
        lines.append(line)
        gaps.append(part[start + len(line) :])
    return Layout(tuple(lines), tuple(gaps))


def pair_lines(source: str, target: str) -> list[tuple[str, str]]:
    """The lines of two texts that are translations of each other; one pair where they differ in number."""
    sources, targets = lay_out(source).lines, lay_out(target).lines
    return list(zip(sources, targets, strict=True)) if len(sources) == len(targets) else [(source, target)]
