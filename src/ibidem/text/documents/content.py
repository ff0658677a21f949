"""The text of an XML element with the codes inside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.text.documents.markup import Kind
from ibidem.text.inline import Code, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ibidem.text.documents.markup import Token, Xml
    from ibidem.text.inline import Pieces

SUB = "text of its own inside a code (<sub>) is left to a person"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which elements inside a text are codes as a whole, and what they do.

    `is_whole` tells whether an element is a code with all that is in it; the others are pairs of tags around text.
    `role` gives what such a code does, and what it shares with its partner (None if that is not in this text).
    """

    is_whole: Callable[[str, Mapping[str, str]], bool]
    role: Callable[[str, Mapping[str, str]], tuple[Role, str | None]]


@dataclass(frozen=True, slots=True)
class Content:
    """Texts and codes; `loss` says why they cannot be translated, if they cannot."""

    pieces: Pieces
    loss: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in it but white space."""
        return all(isinstance(piece, str) and not piece.strip() for piece in self.pieces)


def read_content(tokens: Iterable[Token], xml: Xml, dialect: Dialect) -> Content:
    """The content of an element from the tokens between its tags. Comments are left out."""
    draft = _Draft(xml, dialect)
    for token in tokens:
        if draft.whole is not None:
            draft.pass_over(token, draft.whole)
        elif token.kind == Kind.TEXT:
            draft.run.append(token.text)
        elif token.kind == Kind.INSTRUCTION:
            draft.add(Code(xml.raw(token.start, token.end)))
        elif token.kind == Kind.START:
            draft.open(token)
        elif token.kind == Kind.END:
            draft.close(token)
    draft.flush()
    return Content(tuple(draft.pieces), draft.loss)


@dataclass(slots=True)
class _Draft:
    xml: Xml
    dialect: Dialect
    pieces: list[str | Code] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    whole: Token | None = None
    depth: int = 0
    count: int = 0
    loss: str = ""

    def flush(self) -> None:
        if text := "".join(self.run):
            self.pieces.append(text)
        self.run = []

    def add(self, code: Code) -> None:
        self.flush()
        self.pieces.append(code)

    def open(self, token: Token) -> None:
        if self.dialect.is_whole(token.name, token.attributes):
            self.whole, self.depth = token, 1
            return
        self.count += 1
        self.opened.append(f"element {self.count}")
        self.add(Code(self.xml.raw(token.start, token.end), Role.OPEN, self.opened[-1], _is_fixed(token)))

    def close(self, token: Token) -> None:
        pair = self.opened.pop()
        if token.start < token.end:
            self.add(Code(self.xml.raw(token.start, token.end), Role.CLOSE, pair))
        elif isinstance(last := self.pieces[-1], Code):
            # It closed itself: nothing stands between its tags.
            self.pieces[-1] = Code(last.text, fixed=last.fixed)

    def pass_over(self, token: Token, first: Token) -> None:
        if token.kind == Kind.START:
            self.depth += 1
            if token.name == "sub":
                self.loss = SUB
        elif token.kind == Kind.END:
            self.depth -= 1
            if self.depth == 0:
                role, pair = self.dialect.role(first.name, first.attributes)
                self.count += 1
                raw = self.xml.raw(first.start, token.end)
                self.add(Code(raw, role, pair or f"alone {self.count}", _is_fixed(first)))
                self.whole = None


def _is_fixed(token: Token) -> bool:
    return token.attributes.get("canReorder", "yes") != "yes"
