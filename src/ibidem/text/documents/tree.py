"""A small part of an XML file, such as one unit, as elements that know their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents.markup import Kind
from ibidem.text.limits import LONGEST_UNIT, MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ibidem.text.documents.markup import Token


@dataclass(slots=True)
class Tree:
    """The tokens of an element in order, and for each start tag the place of its end tag among them."""

    tokens: list[Token]
    ends: dict[int, int] = field(default_factory=dict)

    @classmethod
    def collect(cls, first: Token, tokens: Iterator[Token], name: str) -> Node:
        """The element that begins with this start tag, taken from the tokens after it.

        Raises TextError where it is too large to be kept; `name` is the file's.
        """
        tree = cls([first])
        open_tags = [0]
        while open_tags:
            token = next(tokens)
            if token.kind == Kind.START:
                open_tags.append(len(tree.tokens))
            elif token.kind == Kind.END:
                tree.ends[open_tags.pop()] = len(tree.tokens)
            tree.tokens.append(token)
            if len(tree.tokens) > MOST_TOKENS or token.end - first.start > LONGEST_UNIT:
                raise TextError(
                    f"{name}, line {first.line}: <{first.name}> has more than {MOST_TOKENS:,} tags and pieces of text, "
                    f"or more than {LONGEST_UNIT:,} bytes. Remove or split it."
                )
        return Node(tree, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """An element of a tree."""

    tree: Tree
    place: int

    @property
    def opening(self) -> Token:
        """Its start tag."""
        return self.tree.tokens[self.place]

    @property
    def closing(self) -> Token:
        """Its end tag."""
        return self.tree.tokens[self.tree.ends[self.place]]

    @property
    def name(self) -> str:
        """Its name."""
        return self.opening.name

    @property
    def attributes(self) -> Mapping[str, str]:
        """Its attributes."""
        return self.opening.attributes

    @property
    def line(self) -> int:
        """The line it begins on."""
        return self.opening.line

    def inside(self) -> list[Token]:
        """The tokens between its tags."""
        return self.tree.tokens[self.place + 1 : self.tree.ends[self.place]]

    def text(self) -> str:
        """All text in it."""
        return "".join(token.text for token in self.inside())

    def children(self, *names: str) -> Iterator[Node]:
        """The elements directly in it, of these names or all."""
        place = self.place + 1
        while place < self.tree.ends[self.place]:
            if self.tree.tokens[place].kind == Kind.START:
                if not names or self.tree.tokens[place].name in names:
                    yield Node(self.tree, place)
                place = self.tree.ends[place]
            place += 1

    def child(self, name: str) -> Node | None:
        """The first such element."""
        return next(self.children(name), None)

    def descendants(self, matches: Callable[[Token], bool]) -> Iterator[Node]:
        """The elements in it whose start tags match, at any depth, but not those inside one another."""
        place = self.place + 1
        while place < self.tree.ends[self.place]:
            token = self.tree.tokens[place]
            if token.kind == Kind.START and matches(token):
                yield Node(self.tree, place)
                place = self.tree.ends[place]
            place += 1

    def gap(self) -> tuple[int, int]:
        """The bytes of the text right before it."""
        place = self.place
        while place and self.tree.tokens[place - 1].kind == Kind.TEXT:
            place -= 1
        return self.tree.tokens[place].start, self.opening.start
