"""How fast a translator worked."""

from __future__ import annotations

from dataclasses import dataclass

from ibidem.errors import UsageError


@dataclass(frozen=True)
class Speed:
    """A count of sentences and of generated target tokens, and the wall-clock seconds they took.

    Raises UsageError for a count below zero or a time that is not above zero.
    """

    sentences: int
    tokens: int
    seconds: float

    def __post_init__(self) -> None:
        if self.sentences < 0 or self.tokens < 0 or not self.seconds > 0:
            raise UsageError(
                f"{self.sentences} sentences and {self.tokens} tokens in {self.seconds} s is no measurement: "
                "counts must not be negative and the time must be above zero."
            )

    @property
    def sentences_per_second(self) -> float:
        """Sentences a second."""
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Generated target tokens a second."""
        return self.tokens / self.seconds
