"""The one family of errors that ibidem raises for what a user can put right."""

from __future__ import annotations


class IbidemError(Exception):
    """Something the user can put right; the message says what happened, where, and what to do next."""

    exit_code = 1


class UsageError(IbidemError):
    """A setting or an argument that cannot be meant as it was given."""

    exit_code = 2


class TextError(IbidemError):
    """Parallel text that cannot be read: names the file and the line."""


class ModelError(IbidemError):
    """A base model that cannot be loaded or used."""


class MemoryFolderError(IbidemError):
    """A memory folder that cannot be opened, read or written."""


class DamagedMemoryError(MemoryFolderError):
    """A file of a memory that is missing, truncated or changed."""


class CommittedError(MemoryFolderError):
    """A failure after the commit point: the change is part of the memory, and need not be made again."""


class LockedMemoryError(MemoryFolderError):
    """A memory that another process is writing."""


class MismatchError(MemoryFolderError):
    """A memory and a model (or a tokenizer, a corpus, a dimension) that do not belong together."""
