"""The committed ends of the journals: how much of each one was acknowledged, kept outside of the journals.

`journals.json` names, for every journal, the bytes and records up to its committed end, and a digest of them. It is
replaced after a record is on disk and before its writer returns. So a journal that is shorter than its committed end,
or other than its digest says, is damaged, and what lies beyond the committed end was acknowledged to no caller.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ibidem.errors import MemoryFolderError
from ibidem.memory.damage import DamagedFile, unreadable
from ibidem.memory.documents import is_sealed, seal_document
from ibidem.memory.fields import parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENDS = "journals.json"
ACCEPT_LOSS = (
    "restore it from a copy; without one, `ibidem verify --accept-loss` keeps what is sound and gives up the rest"
)
_FORMAT = 1


@dataclass(frozen=True)
class End:
    """The committed end of a journal: its bytes, its records, and the chained sha256 of its records."""

    bytes: int = 0
    records: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Ends:
    """The committed ends by journal number; first: journals with lower numbers may have been removed."""

    first: int = 1
    journals: Mapping[int, End] = field(default_factory=dict)

    def of(self, number: int) -> End:
        """Return the committed end of a journal; bytes 0 where none of its records was committed."""
        return self.journals.get(number, End())

    def with_end(self, number: int, end: End) -> Ends:
        """Return these ends with another one for this journal."""
        return replace(self, journals={**self.journals, number: end})

    def since(self, first: int) -> Ends:
        """Return the ends of the journals from this number on."""
        return Ends(first, {number: end for number, end in self.journals.items() if number >= first})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with `format` first."""
        journals = [{"number": number, **asdict(end)} for number, end in sorted(self.journals.items())]
        return {"format": _FORMAT, "first": self.first, "journals": journals}


def seal_ends(ends: Ends) -> bytes:
    """Return the content of the file of committed ends."""
    return seal_document(ends.to_json(), "the committed ends")


def read_ends(folder: Path, *, required: bool = True) -> Ends | None:
    """Read the committed ends of a memory; None where there is no file and none is required.

    Raises DamagedFile for a file that is missing, changed or inconsistent, and MemoryFolderError for a newer format.
    """
    file = folder / ENDS
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        if not required:
            return None
        raise unreadable(file, error, ACCEPT_LOSS) from error
    except OSError as error:
        raise unreadable(file, error, ACCEPT_LOSS) from error
    if not is_sealed(content):
        raise DamagedFile(file, "its checksum does not match its content", ACCEPT_LOSS)
    fields = parse(content, file)
    if (number := fields.integer("format", 1)) > _FORMAT:
        raise MemoryFolderError(f"{file} was written by a newer ibidem (format {number}): upgrade ibidem")
    items = fields.list_of_fields("journals")
    journals = {
        item.integer("number", 1): End(item.integer("bytes", 1), item.integer("records", 1), item.sha256("sha256"))
        for item in items
    }
    if len(journals) < len(items):
        raise fields.fault("journals", "a list of journals, each once")
    return Ends(fields.integer("first", 1), journals)
