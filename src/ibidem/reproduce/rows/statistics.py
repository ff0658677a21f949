"""How large a text is: sentence pairs, and the target tokens that become entries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from ibidem.reproduce.rows.row import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage

_BLOCK = 4096


@dataclass(frozen=True)
class Statistics:
    """One part of a domain, counted."""

    domain: str
    part: str

    alone: ClassVar[bool] = False
    seed: ClassVar[int] = 0
    stages: ClassVar[tuple[Stage, ...]] = ()

    @property
    def name(self) -> str:
        return f"{self.domain}/{self.part} counted"

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.domain, self.part),)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + (1e-4 * pairs((self.domain,)) if self.part == "train" else 0)

    def measure(self, bench: Workspace) -> Measured:
        tokens, pairs, words = 0, 0, 0
        stream = iter(bench.corpus(self.domain, self.part))
        while block := list(islice(stream, _BLOCK)):
            targets = [pair.target for pair in block]
            tokens += sum(map(len, bench.model.tokens.encode_targets(targets)))
            words += sum(len(target.split()) for target in targets)
            pairs += len(block)
        return Measured({"pairs": pairs, "target_tokens": tokens, "target_words": words})
