"""The exceptions that ibidem raises for errors that a user can correct.

Every message contains what happened, where, and what to do. The command line prints the message without a stack trace
and exits with `exit_code`.
"""

from __future__ import annotations


class IbidemError(Exception):
    """Base class of all errors that a user can correct.

    Attributes:
        exit_code: The exit code of the command line: 1, or 2 for invalid settings and arguments.
    """

    exit_code = 1


class UsageError(IbidemError):
    """Raised for an invalid setting or argument."""

    exit_code = 2


class TextError(IbidemError):
    """Raised when a file of parallel text cannot be read; the message names the file and the line."""


class RefusedTextError(TextError):
    """Raised when parallel text has a certain defect, such as exchanged languages.

    Args:
        message: What was found, and what the caller of a command can do.
        reasons: What was found.
    """

    def __init__(self, message: str, reasons: str = "") -> None:
        super().__init__(message)
        self.reasons = reasons


class EncodingError(TextError):
    """Raised when text is not in UTF-8 and its encoding is not known."""


class GlossaryError(IbidemError):
    """Raised when a glossary is invalid, or its file cannot be read or written."""


class ModelError(IbidemError):
    """Raised when a base model cannot be loaded or used."""


class MemoryFolderError(IbidemError):
    """Raised when a memory folder cannot be opened, read or written."""


class DamagedMemoryError(MemoryFolderError):
    """Raised when a file of a memory is missing, truncated or changed."""


class CommittedError(MemoryFolderError):
    """Raised for a failure after the commit point: the change is part of the memory and must not be repeated."""


class LockedMemoryError(MemoryFolderError):
    """Raised when another process holds the writer's lock of a memory."""


class MismatchError(MemoryFolderError):
    """Raised when a memory does not match a model, a tokenizer, a corpus or a dimension."""


class WorkerError(IbidemError):
    """Raised when a task cannot be run on any worker of an executor."""


class ShardError(IbidemError):
    """Raised when a shard of an index cannot be used: it refuses, cannot be reached, or does not answer in time."""
