"""What an element of XLIFF says for all that is in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.text.documents.markup import SPACE

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Inherited:
    """Whether text is to be translated, and whether its white space counts."""

    translate: bool = True
    preserve: bool = False

    def narrowed(self, attributes: Mapping[str, str]) -> Inherited:
        """The same with what an element's own attributes say."""
        translate, space = attributes.get("translate"), attributes.get(SPACE)
        if translate is None and space is None:
            return self
        return Inherited(
            self.translate if translate is None else translate != "no",
            self.preserve if space is None else space == "preserve",
        )
